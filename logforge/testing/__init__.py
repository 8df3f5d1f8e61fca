"""The kit that tests a connector outside the tree."""
