"""Losses that learn from a replay buffer."""
