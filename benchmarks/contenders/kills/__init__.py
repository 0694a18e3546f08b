"""Population training that is begun, or gone on with, in a folder; see ``tournament_kills.py``."""
