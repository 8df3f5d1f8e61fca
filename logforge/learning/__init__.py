"""Policies, how they are trained and how they are estimated."""
