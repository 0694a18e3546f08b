"""ElegantRL's ideas as TorchRL components."""
