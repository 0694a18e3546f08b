"""Run folders of strangers: read as data, and refused by name where they are damaged."""

from __future__ import annotations

import sys

import pytest
from run_folders import run_folder

from torchrl_elegant.reports.stored_runs import UnreadableRunError, find_runs, read_run

BOMB = "a: &a [x, x, x]\nb: &b [*a, *a, *a]\nc: [*b, *b, *b]\n"
ROWS = "frames,return_mean\n"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("config.yaml", "a: [", "not YAML"),
        ("config.yaml", "[" * 5_000, "not YAML"),
        ("config.yaml", "!!python/object/apply:os.system [false]", "not YAML"),
        ("config.yaml", BOMB, "references"),
        ("config.yaml", "", "not that of a run"),
        ("config.yaml", "- 1", "not that of a run"),
        ("config.yaml", "format: torchrl_elegant.run\nrun: 3\nconfig: {}", "not that of a run"),
        (
            "config.yaml",
            "{format: torchrl_elegant.run, algorithm: sac, run: {env: a, seed: x}, config: {}}",
            "no seed",
        ),
        ("config.yaml", "#" * (1 << 21), "far too long"),
        ("metrics.csv", "", "metrics.csv is damaged"),
        ("metrics.csv", ROWS, "no evaluation yet"),
        ("metrics.csv", f"{ROWS}10,garbage\n", "metrics.csv is damaged"),
        ("metrics.csv", f"{ROWS}10,\n", "holds no return"),
        ("metrics.csv", f"{ROWS}10,inf\n", "not finite"),
        ("metrics.csv", f"{ROWS}10,1e300\n", "not finite"),
        ("metrics.csv", f"{ROWS},1\n", "not finite"),
        ("metrics.csv", f"{ROWS}20,1\n10,1\n", "frames do not ascend"),
        ("metrics.csv", "loss\n0.1\n", "must start"),
    ],
)
def test_what_is_damaged_is_named(tmp_path, name, text, told):
    folder = run_folder(tmp_path / "run")
    (folder / name).write_text(text)
    with pytest.raises(UnreadableRunError, match=told):
        read_run(folder)


def test_bytes_that_are_no_text_are_named(tmp_path):
    folder = run_folder(tmp_path / "run")
    (folder / "metrics.csv").write_bytes(b"\xff\xfe\n\x00,\xff\n")
    with pytest.raises(UnreadableRunError, match=r"metrics.csv is damaged"):
        read_run(folder)


def test_names_in_a_configuration_import_nothing(tmp_path, monkeypatch):
    (tmp_path / "stranger.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(tmp_path)
    folder = run_folder(tmp_path / "run")
    text = (folder / "config.yaml").read_text()
    text = text.replace("Pendulum-v1", "stranger:run").replace(
        "algorithm: sac", "algorithm: stranger:sac"
    )
    (folder / "config.yaml").write_text(text)
    run = read_run(folder)
    assert (run.environment, run.algorithm) == ("stranger:run", "stranger:sac")
    assert "stranger" not in sys.modules


def test_a_torn_last_row_is_left_out(tmp_path):
    folder = run_folder(tmp_path / "run")
    with (folder / "metrics.csv").open("a") as file:
        file.write("400,40")
    assert read_run(folder).frames.tolist() == [100, 200, 300]


def test_rows_without_a_return_are_left_out(tmp_path):
    folder = run_folder(tmp_path / "run")
    with (folder / "metrics.csv").open("a") as file:
        file.write("400,40,\n")
    assert read_run(folder).frames.tolist() == [100, 200, 300]


def test_runs_are_found_below_a_folder_and_not_below_a_run(tmp_path):
    run_folder(tmp_path / "deep" / "er" / "run")
    run_folder(tmp_path / "deep" / "er" / "run" / "inner")
    assert find_runs([tmp_path]) == [tmp_path / "deep" / "er" / "run"]
