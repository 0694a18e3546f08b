"""The command `torchrl-elegant`: its commands, its help, its mistakes, its entry points."""

from __future__ import annotations

import importlib
import importlib.metadata
import runpy
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
from faults.runs import SCRIPTS, SMALL, environment

from torchrl_elegant import __version__
from torchrl_elegant.algorithms import ALGORITHMS
from torchrl_elegant.cli.command_line import run_main
from torchrl_elegant.cli.info import extras_installed, info_page
from torchrl_elegant.cli.main import COMMANDS, main
from torchrl_elegant.cli.training import train_command
from torchrl_elegant.runs import Policy


def call(capsys: pytest.CaptureFixture, *words: str) -> tuple[int, str, str]:
    code = main(words)
    streams = capsys.readouterr()
    return code, streams.out, streams.err


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run."""
    folder = tmp_path_factory.mktemp("runs") / "point"
    assert main(["train", *SMALL, "total_frames=48", f"folder={folder}"]) == 0
    return folder


def test_the_console_script_is_main():
    parser = ConfigParser(interpolation=None)
    parser.read(SCRIPTS.parent / "setup.cfg")
    name, _, target = parser["options.entry_points"]["console_scripts"].strip().partition(" = ")
    module, _, function = target.partition(":")
    assert name == "torchrl-elegant"
    assert getattr(importlib.import_module(module), function) is main


def test_the_module_is_the_same_command_and_its_help_needs_no_torch():
    program = "import sys, runpy; sys.argv = ['torchrl_elegant', '--help']\n"
    program += "try:\n    runpy.run_module('torchrl_elegant', run_name='__main__')\n"
    program += "finally:\n    assert 'torch' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: torchrl-elegant <command>")


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"], []])
def test_help_lists_each_command_with_a_line_and_an_example(capsys, words):
    code, out, err = call(capsys, *words)
    assert (code, err) == (0, "")
    width = max(map(len, COMMANDS))
    for name, command in COMMANDS.items():
        assert f"  {name.ljust(width)}  {command.about}\n" in out
        assert f"  torchrl-elegant {command.example}\n" in out
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize("words", [["--version"], *([name, "--version"] for name in COMMANDS)])
def test_every_command_tells_the_version(capsys, words):
    assert call(capsys, *words) == (0, f"torchrl_elegant {__version__}\n", "")


def test_scripts_tell_the_version(capsys):
    assert train_command(["--version"], program="train_sac.py", default="sac") == 0
    assert capsys.readouterr().out == f"torchrl_elegant {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_page_of_options(capsys, name):
    code, out, _ = call(capsys, name, "--help")
    assert code == 0
    assert out.startswith(f"usage: torchrl-elegant {name}")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["trian"], "unknown command 'trian': did you mean `train`?"),
        (["env=Pendulum-v1"], "write torchrl-elegant train env=Pendulum-v1"),
        (["--seeds"], "unknown command '--seeds'"),
        (["info", "all=true"], "unknown option `all`"),
        (["train", "algorithm=sax"], "did you mean `sac`"),
        (["export"], "`run` must be a run folder; write torchrl-elegant export <run folder>"),
        (["export", "nowhere"], "`run` must hold policy.pt, got 'nowhere' without"),
        (["export", "nowhere", "to=policy.pb"], "`to` must be a file that ends in .onnx or .pt2"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(capsys, words, line):
    code, out, err = call(capsys, *words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert line in err


def test_train_takes_every_algorithm_and_evaluate_its_run(capsys, tmp_path, trained):
    folder = tmp_path / "run"
    words = [word for word in SMALL if not word.startswith(("env=", "warmup="))]
    dqn = ["algorithm=dqn", "env=CartPole-v1", "warmup=20", "total_frames=40"]
    assert call(capsys, "train", *words, *dqn, f"folder={folder}")[0] == 0
    assert "algorithm: dqn" in (folder / "config.yaml").read_text()
    code, out, _ = call(capsys, "evaluate", str(folder), "episodes=2")
    assert code == 0
    assert out.startswith("2 episodes: return ")


def test_info_names_versions_hardware_algorithms_and_environments(capsys):
    code, out, _ = call(capsys, "info")
    assert code == 0
    for name in ("torch", "torchrl", "tensordict", "gymnasium"):
        assert f"{name.ljust(18)}{importlib.metadata.version(name)}\n" in out
    for word in ("Python", "CPU cores", "memory", "devices", "extras"):
        assert f"\n{word} " in out
    for name in ALGORITHMS:
        assert f"\n  {name} " in out
    assert "\n  elegant/chasing" in out


def test_info_of_an_algorithm_leaves_out_its_reference():
    assert "Soft actor-critic. Actions: continuous" in info_page()


def test_an_extra_is_there_when_all_it_asks_for_is(monkeypatch):
    found = ["torch>=2; extra == 'one'", "no-such-package; extra == 'two'", "torch<1; extra=='old'"]
    found += ["torch; extra == 'dev'", "torch; extra == 'docs'", "torch"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: found)
    assert extras_installed() == {"one": True, "two": False, "old": False}


def test_info_of_a_package_that_is_not_installed_says_so(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", absent)
    assert "extras            unknown: the package is not installed" in info_page()


def test_export_hands_the_chosen_policy_to_a_new_file(capsys, monkeypatch, tmp_path, trained):
    asked = []

    def export(policy: Policy, path: Path) -> None:
        asked.append(policy)
        path.write_bytes(b"exported")

    monkeypatch.setattr(Policy, "export", export, raising=False)
    target = tmp_path / "policy.onnx"
    words = ("export", str(trained), f"to={target}", "policy=best")
    code, out, _ = call(capsys, *words)
    assert (code, len(asked), target.read_bytes()) == (0, 1, b"exported")
    assert out == f"exported {trained / 'policy_best.pt'} to {target}\n"
    code, _, err = call(capsys, *words)
    assert (code, len(asked)) == (2, 1)
    assert "`to` must be a new file" in err
    code, _, err = call(capsys, "export", str(trained), f"to={tmp_path / 'no' / 'policy.onnx'}")
    assert code == 2
    assert "`to` must lie in a folder that exists" in err


def test_the_file_of_the_command_runs_it(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["main.py", "--version"])
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_path(main.__code__.co_filename, run_name="__main__")
    assert capsys.readouterr().out == f"torchrl_elegant {__version__}\n"


def test_an_error_of_the_system_is_told_in_a_line_and_one_of_somebody_keeps_its_traceback(capsys):
    def fail(words):
        Path("/proc/nowhere").write_text("")

    assert run_main(fail, []) == 1
    assert capsys.readouterr().err == "error: No such file or directory: /proc/nowhere\n"

    def raise_own(words):
        raise OSError("a simulator's own")

    with pytest.raises(OSError, match="own"):
        run_main(raise_own, [])
