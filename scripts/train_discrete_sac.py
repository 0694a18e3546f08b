"""Train discrete SAC: `python scripts/train_discrete_sac.py env=CartPole-v1 total_frames=50000`."""

import sys

if __name__ == "__main__":
    # Here, because worker processes read this file as well, and need none of it.
    from torchrl_elegant.cli.training import train_command

    sys.exit(train_command(sys.argv[1:], program="train_discrete_sac.py", default="discrete_sac"))
