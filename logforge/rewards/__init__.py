"""A reward spec over steps: terms, rewards, returns."""
