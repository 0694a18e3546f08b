"""Examples and notebooks run to their end, with small budgets."""

from __future__ import annotations

import importlib.util
import re
import sys

import nbformat
import pytest
from docs.pages import A_BATCH, ROOT, shortest
from nbclient import NotebookClient

EXAMPLES = ROOT / "examples"
TASKS = EXAMPLES / "ten_tasks"


def load(path):
    """A module from its file, by its path below the repository."""
    name = "_".join(path.relative_to(ROOT).with_suffix("").parts)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name", ["hello_sac", "hello_ppo", "hello_qmix", "own_environment", "own_loss"]
)
def test_an_example_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frames = shortest(name)
    assert load(EXAMPLES / f"{name}.py").main(total_frames=frames) == pytest.approx(0, abs=2_000)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 200


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs_and_is_stored_without_output(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    for number, cell in enumerate(notebook.cells):
        # More than a tuned warm-up or rollout, and more from cell to cell.
        least = shortest(cell.source)
        least = 16_400 if '"ppo"' in cell.source else 5_200 if "tuned(" in cell.source else least
        frames = least + 16 * number
        cell.source = re.sub(r"(total_frames\W{1,4})\d[\d_]*", rf"\g<1>{frames}", cell.source)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()


def test_the_ten_tasks_run_in_their_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    order = [TASKS / "here" / f"{name}.py" for name in ORDER]
    assert sorted(order) == sorted((TASKS / "here").glob("*.py"))
    for path in order:
        text = path.read_text(encoding="utf-8").replace("seeds=3", "seeds=2")
        # As few as leave something to learn after the warm-up, or fill a rollout.
        frames = A_BATCH if "PPO" in text else 1_300 if path.stem == "go_on" else 1_200
        text = re.sub(r"(total_frames=)\d[\d_]*", rf"\g<1>{frames}", text)
        exec(compile(text, str(path), "exec", dont_inherit=True), {"__name__": "__main__"})


ORDER = (
    "train",
    "evaluate",
    "load",
    "go_on",
    "callback",
    "own_network",
    "own_environment",
    "compare_seeds",
    "video",
    "export",
)


@pytest.mark.parametrize("name", ORDER)
def test_no_task_takes_more_lines_than_with_stable_baselines3(name):
    ours, theirs = (count(TASKS / side / f"{name}.py") for side in ("here", "stable_baselines3"))
    assert ours <= theirs


def count(path):
    """Lines of code of a program."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return sum(1 for line in lines if line.strip() and not line.strip().startswith("#"))
