"""Policies outside of training: as programs, in plain arrays, and in formats of others."""
