"""What a policy is worth: estimated from the log, or played."""
