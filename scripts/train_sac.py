"""Train SAC, ModSAC or REDQ: `python scripts/train_sac.py env=Pendulum-v1 total_frames=20_000`."""

import sys

from torchrl_elegant.trainers.command import train_command

if __name__ == "__main__":
    sys.exit(train_command(sys.argv[1:], program="train_sac.py", default="sac"))
