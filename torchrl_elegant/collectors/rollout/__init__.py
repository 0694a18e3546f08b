"""Rollouts in one process: environment and policy stepped directly, a batch at a time."""
