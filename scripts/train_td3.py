"""Train TD3 or DDPG: `python scripts/train_td3.py env=Pendulum-v1 total_frames=20_000`."""

import sys

if __name__ == "__main__":
    # Here, because worker processes read this file as well, and need none of it.
    from torchrl_elegant.cli.training import train_command

    sys.exit(train_command(sys.argv[1:], program="train_td3.py", default="td3"))
