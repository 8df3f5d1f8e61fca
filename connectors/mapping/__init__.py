"""A YAML mapping for a shape that no connector knows."""
