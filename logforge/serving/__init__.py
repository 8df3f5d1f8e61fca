"""A policy in a live session: states from events, guards, the action parser."""
