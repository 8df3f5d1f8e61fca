"""Runs of agent benchmarks."""
