"""A dataset in other tools' forms: `catalogue` says which there are, each has a module that writes it, and
logforge/exports/pipeline.py chooses, opens and counts."""
