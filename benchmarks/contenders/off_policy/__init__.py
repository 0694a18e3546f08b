"""Algorithms with a replay buffer: gradient updates alone, and the loop with collection."""
