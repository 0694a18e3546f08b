"""Sweeps: runs of several seeds, one after another or side by side."""
