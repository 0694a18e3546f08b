"""Train discrete SAC: `python scripts/train_discrete_sac.py env=CartPole-v1 total_frames=50000`."""

import sys

from torchrl_elegant.trainers.command import train_command

if __name__ == "__main__":
    sys.exit(train_command(sys.argv[1:], program="train_discrete_sac.py", default="discrete_sac"))
