"""What a record is and what is valid: no I/O, no engine, no learning library."""
