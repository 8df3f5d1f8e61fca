"""The learners, and a training run from shards to a bundle."""
