"""The arrays that a trainer gets: written, read, sampled."""
