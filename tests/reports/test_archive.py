"""Finished seeds of studies: kept whole, found again, and never trained twice."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest
import yaml

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import _archive  # noqa: E402
import _seeds  # noqa: E402
import hterm_study  # noqa: E402
import learning  # noqa: E402


@pytest.fixture
def run(tmp_path):
    """What a run leaves in its folder."""
    folder = tmp_path / "run"
    folder.mkdir()
    rows = "1000,10,0.5004,-3.25,\n2000,20,1,,7\n"
    (folder / "metrics.csv").write_text(f"frames,updates,seconds,return_mean,loss\n{rows}")
    settings = {"run": {"env": "E-v0", "seed": 3, "folder": str(tmp_path), "threads": 1}}
    (folder / "config.yaml").write_text(yaml.safe_dump(settings | {"config": {"lr": 0.1}}))
    return folder


def test_a_seed_is_kept_with_its_curve_and_settings_and_without_paths(run, tmp_path) -> None:
    path = tmp_path / "seeds" / "a.jsonl"
    _archive.add(path, 3, _archive.gather(run, {"return_mean": 1.5, "return_std": 0.5}))
    kept = _archive.read(path)[3]
    assert kept["evaluation"] == {"return_mean": 1.5, "return_std": 0.5}
    assert kept["settings"] == {"run": {"env": "E-v0"}, "config": {"lr": 0.1}}
    first, second = kept["curve"]
    assert first == {"frames": 1000.0, "updates": 10.0, "seconds": 0.5, "return_mean": -3.25}
    assert math.isnan(second["return_mean"])
    assert str(tmp_path) not in path.read_text()


def test_seeds_stand_in_order_and_a_later_one_takes_the_place_of_an_earlier(run, tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    for seed, value in ((2, 1.0), (0, 2.0), (2, 3.0)):
        _archive.add(path, seed, _archive.gather(run, {"return_mean": value}))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(one["seed"], one["evaluation"]["return_mean"]) for one in lines] == [
        (0, 2.0),
        (2, 3.0),
    ]


def test_a_kill_while_writing_leaves_what_was_there(run, tmp_path, monkeypatch) -> None:
    path = tmp_path / "a.jsonl"
    kept = _archive.gather(run, {"return_mean": 1.0})
    _archive.add(path, 0, kept)

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        _archive.add(path, 1, kept)
    assert list(_archive.read(path)) == [0]


def test_a_study_trains_only_what_is_not_kept(run, tmp_path, monkeypatch) -> None:
    words = (f"runs={tmp_path / 'runs'}", f"results={tmp_path / 'results'}", "processes=1")
    study = learning.parse(["task=pendulum", "algorithm=ppo", "seeds=3", *words])
    (training,) = study.trainings
    _archive.add(training.archive, 1, _archive.gather(run, {"return_mean": 5.0, "return_std": 0.0}))
    trained = []

    def train(one, seed, folder, children, lock):
        trained.append(seed)
        folder.mkdir()
        for name in ("metrics.csv", "config.yaml"):
            (folder / name).write_bytes((run / name).read_bytes())
        return {"return_mean": float(seed), "return_std": 0.0}

    monkeypatch.setattr(_seeds, "train_and_evaluate", train)
    results, failures = _seeds.run_all([training], range(3), processes=1)
    assert not failures
    assert trained == [0, 2]
    assert [one["evaluation"]["return_mean"] for one in results] == [0.0, 5.0, 2.0]
    again, _ = _seeds.run_all([training], range(3), processes=1)
    assert trained == [0, 2]
    assert again == results


def test_other_settings_are_kept_apart(tmp_path) -> None:
    one, other = (
        learning.parse(["task=pendulum", "algorithm=ppo", *more]).trainings[0].archive
        for more in ((), ("lr=1e-4",))
    )
    assert one != other
    assert one.parent == other.parent


def test_studies_that_train_the_same_share_its_seeds() -> None:
    alone = learning.parse(["task=hopper", "algorithm=ppo,_sb3:ppo"]).trainings
    base, _, peer = hterm_study.parse(["task=ppo_hopper"]).trainings
    assert [one.archive for one in alone] == [base.archive, peer.archive]
