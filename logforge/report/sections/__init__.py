"""One module a section of the report."""
