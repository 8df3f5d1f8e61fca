"""Worlds whose truth is known: simulators, exact values and credit."""
