"""One HTML page on a store and a dataset."""
