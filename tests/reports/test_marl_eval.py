"""JSON for marl-eval: the form that it documents, and what it could not compare."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_folders import run_folder, sweep_folder

from torchrl_elegant.cli.commands import compare_command
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.reports import compare

NAVIGATION, BALANCE = {"env": "vmas/navigation"}, {"env": "vmas/balance"}


def written(folder: Path, **options) -> tuple[dict, tuple[str, ...]]:
    file = folder / "marl.json"
    comparison = compare([folder], marl_eval=file, **options)
    return json.loads(file.read_text()), comparison.notes


def require_the_documented_form(data: dict) -> None:
    """marl-eval's README: the same algorithms, runs, steps and metrics in all of an environment."""
    for tasks in data.values():
        shapes = set()
        for algorithms in tasks.values():
            for runs in algorithms.values():
                for steps in runs.values():
                    *names, last = steps
                    assert names == [f"step_{number}" for number in range(1, len(names) + 1)]
                    assert last == "absolute_metrics"
                    assert steps[last].keys() == {"return"}
                    counts = [steps[name].pop("step_count") for name in names]
                    assert counts == sorted({*counts})
                    assert all(type(count) is int for count in counts)
                    for metrics in steps.values():
                        (value,) = metrics["return"]
                        assert isinstance(value, float)
                    shapes.add((tuple(algorithms), tuple(runs), len(steps)))
            assert not any("," in name for name in algorithms)
        assert len({(frozenset(names), *rest) for names, *rest in shapes}) == 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two algorithms on two tasks, two seeds each."""
    for task, run in (("navigation", NAVIGATION), ("balance", BALANCE)):
        for algorithm in ("maddpg", "matd3"):
            sweep_folder(tmp_path / f"{task}-{algorithm}", [1.0, 2.0], algorithm=algorithm, run=run)
    return tmp_path


def test_runs_have_the_documented_form(folder):
    data, notes = written(folder)
    run = data["vmas"]["navigation"]["maddpg"]["run_1"]
    assert run == {
        "step_1": {"step_count": 100, "return": [-10.0]},
        "step_2": {"step_count": 200, "return": [-5.0]},
        "step_3": {"step_count": 300, "return": [2.0]},
        "absolute_metrics": {"return": [2.0]},
    }
    assert any("absolute_metrics of the JSON file hold the best evaluation" in n for n in notes)
    require_the_documented_form(data)
    assert list(data["vmas"]) == ["balance", "navigation"]


def test_evaluations_at_other_frames_are_brought_to_one_grid(folder):
    points = ((50, 0.0), (150, 10.0), (250, 20.0), (350, 30.0))
    for seed in (0, 1):
        place = folder / "navigation-maddpg" / f"seed-{seed}" / "metrics.csv"
        rows = [f"{frame},{frame / 10},{value}" for frame, value in points]
        place.write_text("\n".join(["frames,seconds,return_mean", *rows, ""]))
    data, _ = written(folder, at=300)
    require_the_documented_form(json.loads(json.dumps(data)))
    run = data["vmas"]["navigation"]["maddpg"]["run_0"]
    assert [step["step_count"] for step in list(run.values())[:-1]] == [100, 200, 300]
    assert [step["return"] for step in run.values()] == [[5.0], [15.0], [25.0], [20.0]]


def test_the_best_policy_on_new_episodes_is_the_absolute_metric(folder):
    for path in folder.glob("*/seed-*"):
        page = {"policy": "best", "return_mean": 0.25, "returns": [0.25]}
        (path / "evaluation.json").write_text(json.dumps(page))
    data, notes = written(folder)
    assert data["vmas"]["balance"]["matd3"]["run_0"]["absolute_metrics"] == {"return": [0.25]}
    assert not any("absolute_metrics" in note for note in notes)
    (folder / "marl.json").unlink()
    other = folder / "balance-matd3" / "seed-0" / "evaluation.json"
    other.write_text(json.dumps({"policy": "final", "return_mean": 0.5}))
    data, notes = written(folder)
    assert data["vmas"]["navigation"]["matd3"]["run_0"]["absolute_metrics"] == {"return": [1.0]}
    assert any("absolute_metrics" in note for note in notes), "one kind for all runs"


def test_options_are_named_without_commas_and_other_seeds_by_numbers(tmp_path):
    run_folder(tmp_path / "a", algorithm="sac", run={"env": "Pendulum-v1", "seed": 3})
    run_folder(tmp_path / "b", algorithm="sac", run={"env": "Pendulum-v1", "seed": 4}, gamma=0.5)
    data, _ = written(tmp_path)
    require_the_documented_form(data)
    assert set(data["gymnasium"]["Pendulum-v1"]) == {"sac gamma=0.99", "sac gamma=0.5"}
    assert list(data["gymnasium"]["Pendulum-v1"]["sac gamma=0.5"]) == ["run_1"]


def test_what_marl_eval_could_not_compare_is_refused(folder):
    sweep_folder(folder / "more", [1.0], algorithm="td3", run={"env": "Pendulum-v1"})
    assert set(written(folder)[0]) == {"gymnasium", "vmas"}
    (folder / "marl.json").unlink()
    sweep_folder(folder / "balance-qmix", [1.0, 2.0], algorithm="qmix", run=BALANCE)
    with pytest.raises(UsageError, match="for runs of qmix on some tasks of vmas and not on nav"):
        written(folder)
    assert not (folder / "marl.json").exists()
    sweep_folder(folder / "navigation-qmix", [1.0], algorithm="qmix", run=NAVIGATION)
    with pytest.raises(UsageError, match=r"got 1 of qmix \(vmas/navigation\) and 2 of "):
        written(folder)


def test_the_command_writes_the_file_and_never_over_one(folder, tmp_path, capsys):
    words = [str(folder), f"marl_eval={tmp_path / 'x.json'}", f"out={tmp_path / 'page'}"]
    assert compare_command(words, program="compare") == 0
    require_the_documented_form(json.loads((tmp_path / "x.json").read_text()))
    assert compare_command([*words[:2], f"out={tmp_path / 'two'}"], program="compare") == 2
    assert "`marl_eval` must be a new file" in capsys.readouterr().err
