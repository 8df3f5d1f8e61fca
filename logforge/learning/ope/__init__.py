"""Off-policy evaluation: FQE, importance sampling, support."""
