"""Groups of runs: told apart by their options, compared at one frame, nothing dropped unnamed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from run_folders import POINTS, run_folder, sweep_folder

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.reports.groups import Section, grouped, normalized, shared_labels
from torchrl_elegant.reports.stored_runs import find_runs, read_run


def sections_of(*folders: Path, at: int | None = None) -> tuple[list[Section], list[str]]:
    return grouped(map(read_run, find_runs(folders)), at=at)


def labels_of(section: Section) -> list[str]:
    return [group.label for group in section.groups]


def test_seeds_alone_and_what_changes_no_result_make_one_group(tmp_path):
    run_folder(tmp_path / "a", run={"seed": 1, "device": "cpu", "threads": 2})
    run_folder(tmp_path / "b", run={"seed": 2, "keep_last": 9, "eval_interval": 7})
    (section,), notes = sections_of(tmp_path)
    (group,) = section.groups
    assert (group.label, len(group.runs), notes) == ("sac", 2, [])


def test_groups_are_told_apart_by_the_options_that_differ_alone(tmp_path):
    sweep_folder(tmp_path / "a", [1.0, 2.0], actor_lr=1e-3, gamma=0.9)
    sweep_folder(tmp_path / "b", [3.0, 4.0], actor_lr=1e-4, gamma=0.9)
    sweep_folder(tmp_path / "c", [5.0, 6.0], algorithm="td3")
    (section,), _ = sections_of(tmp_path)
    assert labels_of(section) == ["td3", "sac, actor_lr=0.0001", "sac, actor_lr=0.001"]
    assert section.groups[1].differing == {"actor_lr": "0.0001"}


def test_groups_that_differ_in_much_are_numbered(tmp_path):
    few = {"actor_lr": 1e-3, "critic_lr": 1e-3, "gamma": 0.9, "tau": 0.1}
    sweep_folder(tmp_path / "a", [1.0, 1.0])
    sweep_folder(tmp_path / "b", [0.0, 0.0], **few)
    (section,), _ = sections_of(tmp_path)
    assert labels_of(section) == ["sac (1)", "sac (2)"]
    assert set(section.groups[1].differing) == set(few)


def test_environments_with_other_arguments_are_other_environments(tmp_path):
    run_folder(tmp_path / "a", run={"env_kwargs": {"g": 9.0}})
    run_folder(tmp_path / "b")
    sections, _ = sections_of(tmp_path)
    assert [one.environment for one in sections] == [
        "Pendulum-v1",
        "Pendulum-v1 (env_kwargs.g=9.0)",
    ]


def test_networks_from_outside_set_a_run_apart(tmp_path):
    run_folder(tmp_path / "a")
    own = run_folder(tmp_path / "b", run={"seed": 1}) / "config.yaml"
    own.write_text(f"{own.read_text()}networks: [actor, critic]\n")
    (section,), _ = sections_of(tmp_path)
    assert set(labels_of(section)) == {"sac, networks=not set", "sac, networks=actor,critic"}


def test_a_run_that_ends_early_is_named_and_left_out(tmp_path):
    sweep_folder(tmp_path, [1.0, 3.0])
    run_folder(tmp_path / "short", points=POINTS[:2], run={"seed": 7})
    (section,), notes = sections_of(tmp_path)
    (group,) = section.groups
    assert [run.seed for run in group.short] == [7]
    assert group.scores.tolist() == [1.0, 3.0]
    assert notes == [f"{tmp_path / 'short'} ends at frame 200, before 300: left out"]


def test_where_half_the_runs_end_early_their_end_is_compared(tmp_path):
    run_folder(tmp_path / "a", run={"seed": 0})
    run_folder(tmp_path / "b", points=POINTS[:2], run={"seed": 1})
    run_folder(tmp_path / "c", points=POINTS[:2], run={"seed": 2})
    (section,), _ = sections_of(tmp_path)
    assert section.frame == 200
    assert section.groups[0].scores.tolist() == [-5.0, -5.0, -5.0]


def test_groups_of_other_budgets_are_compared_where_all_are(tmp_path):
    long = ((200, 1.0), (400, 3.0), (600, 9.0))
    sweep_folder(tmp_path / "a", [1.0, 3.0])
    run_folder(tmp_path / "b", points=long, algorithm="ppo")
    (section,), notes = sections_of(tmp_path)
    assert section.frame == 300
    assert {group.label: group.scores.tolist() for group in section.groups} == {
        "sac": [1.0, 3.0],
        "ppo": [2.0],  # between its evaluations at 200 and 400
    }
    assert notes == [
        "Pendulum-v1: some groups go on to 600 frames; returns are compared at 300",
    ]


@pytest.mark.parametrize(("at", "scores"), [(200, [-5.0, -5.0]), (250, [-2.0, -1.0])])
def test_the_frame_can_be_chosen(tmp_path, at, scores):
    sweep_folder(tmp_path, [1.0, 3.0])
    (section,), _ = sections_of(tmp_path, at=at)
    assert section.groups[0].scores.tolist() == scores


@pytest.mark.parametrize(("at", "told"), [(99, "got 99"), (1_000, "got 1000")])
def test_a_frame_that_no_run_has_is_refused(tmp_path, at, told):
    sweep_folder(tmp_path, [1.0, 3.0])
    with pytest.raises(UsageError, match=r"^`at` must be .*" + told):
        sections_of(tmp_path, at=at)


def test_a_copy_counts_once_and_a_repeated_seed_is_named(tmp_path):
    run_folder(tmp_path / "a")
    run_folder(tmp_path / "copy")
    run_folder(tmp_path / "other", points=((100, 0.0), (300, 1.0)))
    (section,), notes = sections_of(tmp_path)
    assert section.groups[0].scores.tolist() == [-2.0, 1.0]
    assert notes == [
        f"{tmp_path / 'copy'} repeats {tmp_path / 'a'}, seed 0: left out",
        f"{tmp_path / 'other'} and {tmp_path / 'a'} have the same seed, 0: both count",
    ]


def test_a_folder_that_is_given_twice_counts_once(tmp_path):
    sweep_folder(tmp_path, [1.0, 3.0])
    assert len(find_runs([tmp_path, tmp_path / "seed-0", tmp_path / "." / "seed-1"])) == 2


def test_seeds_come_in_the_order_of_numbers(tmp_path):
    sweep_folder(tmp_path, [0.0] * 11)
    assert [path.name for path in find_runs([tmp_path])][-2:] == ["seed-9", "seed-10"]


def test_curves_lie_on_the_frames_that_all_runs_cover(tmp_path):
    run_folder(tmp_path / "a", points=((0, 0.0), (200, 2.0)))
    run_folder(tmp_path / "b", points=((100, 5.0), (202, 7.0)), run={"seed": 1})
    (section,), _ = sections_of(tmp_path)
    grid, returns = section.groups[0].curve()
    assert grid.tolist() == [100, 200]
    np.testing.assert_allclose(returns, [[1.0, 2.0], [5.0, 5.0 + 2.0 * 100 / 102]])


def test_returns_are_scaled_in_each_environment_by_its_worst_and_best_run(tmp_path):
    sweep_folder(tmp_path / "a", [0.0, 10.0])
    sweep_folder(tmp_path / "b", [20.0, 20.0], algorithm="td3")
    cart = {"env": "MountainCarContinuous-v0"}
    sweep_folder(tmp_path / "c", [5.0, 5.0], run=cart)
    sweep_folder(tmp_path / "d", [5.0, 5.0], run=cart, algorithm="td3")
    sweep_folder(tmp_path / "e", [5.0, 5.0], run=cart, algorithm="ddpg")
    sections, _ = sections_of(tmp_path)
    assert set(shared_labels(sections)) == {"sac", "td3"}
    mountain, pendulum = normalized(sections, "sac")
    assert pendulum.tolist() == [0.0, 0.5]
    assert mountain.tolist() == [0.0, 0.0]
