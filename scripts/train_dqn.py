"""Train DQN, Double DQN, Dueling DQN or D3QN: `python scripts/train_dqn.py env=CartPole-v1`."""

import sys

from torchrl_elegant.trainers.command import train_command

if __name__ == "__main__":
    sys.exit(train_command(sys.argv[1:], program="train_dqn.py", default="dqn"))
