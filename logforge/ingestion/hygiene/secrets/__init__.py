"""Rules and shapes that find keys and passwords in texts."""
