"""Commands of the scripts."""
