"""Rollouts: how one process steps environments and policy."""
