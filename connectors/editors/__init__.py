"""Sessions that editors and their assistants keep: Cline, Roo Code, Cursor, VS Code, opencode, Copilot CLI, aider."""
