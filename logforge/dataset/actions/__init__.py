"""Which actions there are, how they are called, and their arguments."""
