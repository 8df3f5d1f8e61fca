"""How a reward could be gamed, tried on worlds and on the log itself."""
