"""Commands: `torchrl-elegant` and those that the scripts call."""
