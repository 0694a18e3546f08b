"""Train PPO: `python scripts/train_ppo.py env=CartPole-v1 num_envs=8 total_frames=100_000`."""

import sys

from torchrl_elegant.trainers.command import train_command

if __name__ == "__main__":
    sys.exit(train_command(sys.argv[1:], program="train_ppo.py", default="ppo"))
