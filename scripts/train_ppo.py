"""Train PPO or A2C: `python scripts/train_ppo.py env=CartPole-v1 num_envs=8 algorithm=a2c`."""

import sys

if __name__ == "__main__":
    # Here, because worker processes read this file as well, and need none of it.
    from torchrl_elegant.cli.training import train_command

    sys.exit(train_command(sys.argv[1:], program="train_ppo.py", default="ppo"))
