"""Files that `logforge init` writes."""
