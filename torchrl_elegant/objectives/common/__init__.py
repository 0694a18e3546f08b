"""Parts that losses of every family share."""
