"""Records to episodes: the builder, calls and results, identity, outcome."""
