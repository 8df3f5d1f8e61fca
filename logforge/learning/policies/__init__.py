"""A policy as a file: networks, bundle, card, decisions."""
