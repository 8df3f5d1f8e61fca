"""Other people's formats: each connector reads one, and all are found the same way."""
