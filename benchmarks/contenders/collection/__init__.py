"""Collection alone, by the same policy."""
