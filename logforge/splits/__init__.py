"""Which episodes stay on one side, and the proof that they do."""
