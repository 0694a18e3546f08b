"""Train DQN, Double DQN, Dueling DQN or D3QN: `python scripts/train_dqn.py env=CartPole-v1`."""

import sys

if __name__ == "__main__":
    # Here, because worker processes read this file as well, and need none of it.
    from torchrl_elegant.cli.training import train_command

    sys.exit(train_command(sys.argv[1:], program="train_dqn.py", default="dqn"))
