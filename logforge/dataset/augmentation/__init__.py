"""Copies of episodes with other words or with a failing tool."""
