"""Which files there are, and how packed ones are opened."""
