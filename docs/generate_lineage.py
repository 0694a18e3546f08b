"""Writes ``images/lineage.svg`` from a tournament of a minute: ``python docs/generate_lineage.py``.

Eight members search the learning rate and the batch size of PPO on CartPole. With one slot the same
seed gives the same picture.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from torchrl_elegant import PPOConfig
from torchrl_elegant.tournament import lineage, tournament

PICTURE = Path(__file__).parent / "images" / "lineage.svg"
OPTIONS = {
    "population": 8,
    "budget": 48_000,
    "quantum": 500,
    "frames_per_batch": 250,
    "eval_episodes": 10,
    "space": {"lr": "log:1e-5..1e-1", "batch_size": [16, 32, 64, 128]},
    "slots": 1,
    "logger": "none",
    "seed": 1,
}


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    with tempfile.TemporaryDirectory() as place:
        small = PPOConfig(num_cells=(32,))
        result = tournament(small, "CartPole-v1", folder=f"{place}/run", **OPTIONS)
        PICTURE.write_text(lineage(result.folder), encoding="utf-8")


if __name__ == "__main__":
    main()
