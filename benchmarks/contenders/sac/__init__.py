"""SAC: gradient updates alone, and the loop of collection and training."""
