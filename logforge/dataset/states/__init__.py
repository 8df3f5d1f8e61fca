"""What was known strictly before a decision, as an array."""
