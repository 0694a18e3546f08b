"""Train a team: `python scripts/train_marl.py env=vmas/navigation algorithm=qmix seed=0`."""

import sys

if __name__ == "__main__":
    # Here, because worker processes read this file as well, and need none of it.
    from torchrl_elegant.cli.training import train_command

    sys.exit(train_command(sys.argv[1:], program="train_marl.py", default="mappo"))
