"""PPO end to end."""
