"""Human demonstrations in dialogue sets."""
