"""Losses that learn from rollouts of the present policy, and their advantage estimators."""
