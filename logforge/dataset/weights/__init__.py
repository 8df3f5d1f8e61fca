"""What a step counts for in training, and why."""
