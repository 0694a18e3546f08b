"""Every option with every kind of wrong value: one line and exit code 2, or a run that trains."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from cli import wrong_lines
from faults.runs import run

# Of the lines that are read every so many-th; of those that are accepted so many are trained.
READ, TRAINED = 7, 12


@pytest.fixture(scope="module")
def every():
    with wrong_lines.guarded():
        yield list(wrong_lines.lines(*wrong_lines.trained(Path.cwd() / "trained")))


@pytest.fixture(scope="module")
def outcomes(every):
    return [wrong_lines.read(line) for line in every[::READ] if line.command == "train"]


def test_all_options_and_kinds_are_tried(every):
    assert len(every) > 10_000
    assert {line.kind for line in every} == set(wrong_lines.VALUES)
    assert {line.command for line in every} == {"train", "evaluate", "export", "compare"}


def test_a_wrong_line_is_refused_in_one_line(outcomes):
    faults = [fault for outcome in outcomes if (fault := outcome.fault())]
    assert not faults, "\n".join(faults[:10])
    refused = [outcome for outcome in outcomes if outcome.code == 2]
    assert len(refused) > 0.8 * len(outcomes)


def test_an_accepted_line_trains(outcomes):
    accepted = [outcome.line for outcome in outcomes if outcome.code == 0]
    chosen = accepted[:: max(1, len(accepted) // TRAINED)]
    assert len(chosen) >= TRAINED
    faults = [fault for line in chosen if (fault := wrong_lines.run(line).fault())]
    assert not faults, "\n".join(faults)


def test_other_commands_refuse_in_one_line_too(every):
    chosen = [line for line in every if line.command != "train"][::3]
    faults = [fault for line in chosen if (fault := wrong_lines.run(line).fault())]
    assert not faults, "\n".join(faults[:10])


@pytest.mark.parametrize(
    ("script", "words", "code"),
    [
        ("train_sac.py", ["threads=100000"], 2),
        ("evaluate.py", ["\uff11"], 2),
        ("train_ppo.py", ["--version"], 0),
    ],
)
def test_a_process_ends_with_its_code_and_no_signal(tmp_path, script, words, code):
    done = run(words, script=script, cwd=tmp_path)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    if code:
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
    assert not os.listdir(tmp_path)


def test_a_fault_is_found():
    line = wrong_lines.Line(command="train", kind="huge", option="seed", words=("seed=x",))
    promised = wrong_lines.Outcome(line=line, code=2, told="error: a\n", seconds=0.1)
    assert promised.fault() is None
    for changed in (
        {"code": -signal.SIGSEGV},
        {"told": "Traceback (most recent call last):\n"},
        {"told": "error: a\nerror: b\n"},
        {"told": "warning\nerror: a\n"},
        {"told": ""},
        {"seconds": 6.0},
    ):
        values = {"line": line, "code": 2, "told": "error: a\n", "seconds": 0.1} | changed
        assert wrong_lines.Outcome(**values).fault() is not None
