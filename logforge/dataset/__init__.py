"""From the store to a dataset: actions, states, conflicts, quality, weights, build."""
