"""Which steps earned the return."""
