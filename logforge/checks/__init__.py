"""Whether a store or a dataset is still sound."""
