"""Sessions of coding agents and agent frameworks."""
