"""Worker processes of collectors: what they run, how they hand over rows, how they are watched."""
