"""Rollouts that trainers and their environments write: verifiers, ART, verl, RLlib."""
