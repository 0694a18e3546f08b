"""Algorithms for teams."""
