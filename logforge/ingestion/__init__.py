"""Logs into the store: find, read, clean, own, count."""
