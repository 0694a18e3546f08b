"""Evaluate a trained run: `python scripts/evaluate.py runs/my-run episodes=20 video=true`."""

import sys

if __name__ == "__main__":
    # Here, because worker processes read this file as well, and need none of it.
    from torchrl_elegant.cli.commands import evaluate_command

    sys.exit(evaluate_command(sys.argv[1:], program="evaluate.py"))
