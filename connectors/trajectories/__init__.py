"""Trajectory formats: ATIF, ADP, ReAct."""
