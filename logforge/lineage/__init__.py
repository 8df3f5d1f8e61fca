"""From a number back to the line of the log."""
