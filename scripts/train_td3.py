"""Train TD3 or DDPG: `python scripts/train_td3.py env=Pendulum-v1 total_frames=20_000`."""

import sys

from torchrl_elegant.trainers.command import train_command

if __name__ == "__main__":
    sys.exit(train_command(sys.argv[1:], program="train_td3.py", default="td3"))
