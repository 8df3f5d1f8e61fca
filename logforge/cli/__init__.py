"""One file a command: options and printing, no logic."""
