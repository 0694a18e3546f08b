"""Evaluating and filming the policy that a run left."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from torchrl_elegant.algorithms import SACConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.evaluate import evaluate_run
from torchrl_elegant.runs.train import train


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "drawn"
    config = SACConfig(num_cells=(8,), batch_size=8, warmup=20)
    words = {"eval_episodes": 1, "logger": "none", "progress": False, "folder": str(folder)}
    return train(config, "faults.fault_envs:Drawn", total_frames=48, **words).folder


def test_the_seed_decides_the_episodes(trained):
    first, film = evaluate_run(trained, episodes=3, seed=5)
    again, _ = evaluate_run(trained, episodes=3, seed=5)
    other, _ = evaluate_run(trained, episodes=3, seed=6)
    assert film is None
    assert first == again
    assert first.returns != other.returns
    assert len(set(first.returns)) == 3


def test_a_film_shows_every_step_of_an_episode(trained):
    _, film = evaluate_run(trained, episodes=1, video=True)
    with Image.open(film) as pictures:
        assert (pictures.n_frames, pictures.size) == (20, (8, 8))
        assert pictures.info["duration"] == 100  # ten pictures a second, as the metadata say


def test_a_policy_that_is_not_there_is_refused(trained, tmp_path):
    for name in ("config.yaml", "metrics.csv", "policy.pt"):
        (tmp_path / name).write_bytes((trained / name).read_bytes())
    with pytest.raises(UsageError, match=r"policy_best\.pt"):
        evaluate_run(tmp_path, policy="best")
