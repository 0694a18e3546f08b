"""Worker processes of collectors: how they start, wait for tickets, hand over rows, and end."""
