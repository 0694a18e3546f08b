"""Evaluate a trained run: `python scripts/evaluate.py runs/my-run episodes=20 video=true`."""

import sys

from torchrl_elegant.trainers.command import evaluate_command

if __name__ == "__main__":
    sys.exit(evaluate_command(sys.argv[1:], program="evaluate.py"))
