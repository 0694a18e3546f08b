"""Train a population: `python scripts/train_tournament.py env=CartPole-v1 algorithm=[ppo,a2c]`."""

import sys

if __name__ == "__main__":
    # Here, because worker processes read this file as well, and need none of it.
    from torchrl_elegant.cli.tournament import tournament_command

    sys.exit(tournament_command(sys.argv[1:], program="train_tournament.py"))
