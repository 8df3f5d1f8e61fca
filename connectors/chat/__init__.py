"""Conversations as chat APIs and fine-tuning sets write them."""
