"""Runs of scripts and notebooks, and the words that bring their code back."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from faults.runs import SCRIPTS, environment

from torchrl_elegant.algorithms import ALGORITHMS
from torchrl_elegant.cli.commands import evaluate_command
from torchrl_elegant.cli.training import train_command
from torchrl_elegant.runs import trust

SCRIPT = """
from dataclasses import dataclass

from faults.fault_envs import Point
from torchrl_elegant.algorithms import SACConfig, register
from torchrl_elegant.algorithms.base import option
from torchrl_elegant.runs import resume, train
from torchrl_elegant.runs.evaluate import evaluate


@register("mine")
@dataclass(frozen=True, kw_only=True)
class MyConfig(SACConfig):
    doubled: float = option(2.0, "what SAC lacks")


class Mine(Point):
    pass


def make(length=20):
    return Mine(length)


if __name__ == "__main__":
    config = MyConfig(num_cells=(8,), batch_size=8, warmup=20)
    words = {"total_frames": 32, "eval_episodes": 1, "logger": "none", "progress": False}
    for name, env in (("run", make), ("cls", Mine), ("lambda", lambda: Mine())):
        train(config, env, folder=name, **words)
    evaluate("run", episodes=1)
    resume("run", total_frames=48)
    evaluate("cls", episodes=1)
"""


EVALUATE = SCRIPTS / "evaluate.py"
RUN = {"capture_output": True, "text": True, "env": environment(), "timeout": 180, "check": False}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a script that has trained, evaluated and resumed what itself defines."""
    place = tmp_path_factory.mktemp("place")
    (place / "my_file.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "my_file.py"], cwd=place, **RUN)
    assert done.returncode == 0, done.stderr
    assert "env: __main__:make\n" in (place / "run" / "config.yaml").read_text()
    assert "algorithm: __main__:mine\n" in (place / "run" / "config.yaml").read_text()
    return place


@pytest.fixture
def here(place, monkeypatch):
    """This process stands where the script is; what it imports there is gone afterwards."""
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(place)
    monkeypatch.setattr(trust, "_KNOWN", set())
    yield place
    for name in ("my_file", "bad_file"):
        sys.modules.pop(name, None)
    ALGORITHMS.pop("mine", None)


def train(*words: str) -> int:
    return train_command(words, program="train_sac.py", default="sac")


def evaluate(*words: str) -> int:
    return evaluate_command(words, program="evaluate.py")


def copied(place: Path, name: str, target: str) -> Path:
    return Path(shutil.copytree(place / name, place / target))


def test_another_process_evaluates_with_the_file_named(place):
    words = ("cls", "episodes=2", "module=my_file")
    done = subprocess.run([sys.executable, EVALUATE, *words], cwd=place, **RUN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 episodes")


def test_a_run_of_a_script_goes_on_with_the_file_named(capsys, here):
    copied(here, "run", "again")
    assert train("resume=again", "total_frames=64", "module=my_file") == 0
    stored = (here / "again" / "config.yaml").read_text()
    assert "env: my_file:make\n" in stored
    assert "algorithm: my_file:mine\n" in stored
    # From now on the names lead back, for whom trusts them.
    capsys.readouterr()
    assert "`trust` must be true to follow 'my_file:make'" in refusal(capsys, evaluate("again"))
    assert evaluate("again", "episodes=2", "trust=true") == 0


def test_a_run_on_a_lambda_goes_on_with_what_is_named(here):
    copied(here, "lambda", "named")
    assert evaluate("named", "episodes=2", "env=my_file:make") == 0
    assert train("resume=named", "module=my_file", "env=my_file:make", "total_frames=48") == 0
    assert "env: my_file:make\n" in (here / "named" / "config.yaml").read_text()


def test_a_new_run_finds_what_a_named_file_registers(here):
    words = ("algorithm=mine", "env=my_file:make", "doubled=3", "total_frames=32", "folder=new")
    small = ("num_cells=8", "batch_size=8", "warmup=20", "eval_episodes=1", "logger=none")
    assert train(*words, *small, "module=my_file", "progress=false") == 0
    assert "algorithm: my_file:mine\n" in (here / "new" / "config.yaml").read_text()


def test_a_file_may_be_named_with_its_suffix(here):
    copied(here, "cls", "suffixed")
    assert evaluate("suffixed", "episodes=1", "module=my_file.py") == 0
    assert train("resume=suffixed", "module=./my_file.py", "total_frames=48") == 0
    (here / "below").mkdir()
    shutil.copy(here / "my_file.py", here / "below" / "mine.py")
    assert evaluate("suffixed", "episodes=1", "env=below.mine:Mine", "module=below/mine.py") == 0


@pytest.mark.parametrize("path", ["/elsewhere/my_file.py", "../my_file.py"])
def test_a_file_elsewhere_is_refused_by_its_path(capsys, here, path):
    told = refusal(capsys, evaluate("cls", f"module={path}"))
    assert f"`module` must be in the current folder or below it, got '{path}'; run" in told
    assert told.strip().endswith("with module=my_file")


def refusal(capsys: pytest.CaptureFixture, code: int) -> str:
    err = capsys.readouterr().err
    assert code == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("module=no_such",), "`module` must name an importable module, got `no_such`"),
        (("module=bad_file",), "got `bad_file`: ZeroDivisionError: division by zero"),
        (("trust=true",), "`trust` must be false without resume"),
        (("resume=cls", "start_from=cls"), "`start_from` must be none with resume"),
        (("start_from=nowhere", "env=Pendulum-v1"), "no policy file at 'nowhere'"),
        ((f"start_from={'x' * 300}", "env=Pendulum-v1"), "`start_from` must be a run folder or"),
        (("module=no_such.py",), "`module` must name an importable module, got `no_such`"),
        (("resume=cls",), "must be registered by __main__, got `__main__:mine`"),
        (("resume=cls",), "name its file, as module=my_file, or import that file first"),
    ],
)
def test_mistakes_in_training_are_one_line(capsys, here, words, told):
    (here / "bad_file.py").write_text("1 / 0")
    folder = () if "resume=cls" in words else ("folder=unmade",)
    assert told in refusal(capsys, train(*words, *folder))
    assert not (here / "unmade").exists()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("cls",), "`env` must be importable, got '__main__:Mine', which the script or notebook"),
        (("cls", "trust=true"), "name its file, as module=my_file, or env_factory=... in Python"),
        (("lambda",), "a run on '__main__:<lambda>', a callable that no name leads back to"),
        (("lambda", "trust=true", "module=my_file"), "set env=my_file:my_function, or env_factory"),
    ],
)
def test_mistakes_in_evaluation_are_one_line(capsys, words, told):
    assert told in refusal(capsys, evaluate(*words))
