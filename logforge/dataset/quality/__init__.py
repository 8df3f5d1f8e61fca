"""Rules that every row obeys, and gates that stop a build."""
