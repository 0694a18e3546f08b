"""The command line: every mistake is one line and exit code 2, every result is on stdout."""

from __future__ import annotations

import csv
import errno
import importlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from faults.runs import SMALL, run

from torchrl_elegant.algorithms import ALGORITHMS, DQNConfig, SACConfig
from torchrl_elegant.cli import other_names
from torchrl_elegant.cli.command_line import run_main
from torchrl_elegant.cli.commands import evaluate_command, export_command
from torchrl_elegant.cli.training import set_process, train_command
from torchrl_elegant.collectors import WorkerDiedError
from torchrl_elegant.config.options import options_of
from torchrl_elegant.runs import train
from torchrl_elegant.trainers.run_config import RunConfig


def call(capsys: pytest.CaptureFixture, *words: str, command=train_command) -> tuple[int, str, str]:
    named = {"default": "sac"} if command is train_command else {}
    code = command(words, program="script.py", **named)
    streams = capsys.readouterr()
    return code, streams.out, streams.err


def refused(capsys: pytest.CaptureFixture, *words: str, command=train_command) -> str:
    code, _, err = call(capsys, *words, command=command)
    assert code == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert "Traceback" not in err
    return err


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on an environment that can be drawn."""
    folder = tmp_path_factory.mktemp("runs") / "drawn"
    words = [*SMALL, "env=faults.fault_envs:Drawn", "total_frames=48", f"folder={folder}"]
    words.remove("env=faults.fault_envs:point")
    assert train_command(words, program="train_sac.py", default="sac") == 0
    return folder


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["totl_frames=5"], ["`totl_frames`", "did you mean `total_frames`"]),
        (["algorithm=sax"], ["'sax'", "did you mean `sac`"]),
        (["algorithm=no.such:sac"], ["`algorithm`", "importable", "no.such:sac", "No module"]),
        (["algorithm=json:mine"], ["`algorithm` must be registered by json", "json:mine"]),
        (["algorithm=json:sac"], ["`algorithm` must be registered by json", "json:sac"]),
        (["num_workers=4"], ["`num_workers` must stay 2 with collector=sync", "collector=async"]),
        (["push_interval=4"], ["`push_interval` must stay 10 with collector=sync"]),
        (["temperature=fixed", "alpha_lr=1"], ["`alpha_lr` must stay 0.0003", "fixed"]),
        (["collector=asink"], ["`collector`", "sync, parallel, async", "asink"]),
        (["total_frames=many"], ["`total_frames`", "an integer", "many"]),
        (["env=Pendlum-v1"], ["Pendlum-v1", "Pendulum-v1"]),
        (["env=CartPole-v1"], ["continuous action space"]),
        (["total_frames=0"], ["`total_frames`", "0"]),
        (["actor_lr=-1"], ["`actor_lr` must be a finite number above 0", "-1"]),
        (["critic_lr=0"], ["`critic_lr` must be a finite number above 0"]),
        (["alpha=inf"], ["`alpha` must be a finite number above 0", "inf"]),
        (["target_entropy=inf"], ["`target_entropy` must be a finite number, or none", "inf"]),
        (["hterm.max_age=1e20"], ["`hterm.max_age` must be an integer in [1, 2147483648)"]),
        (["updates_per_frame=-1"], ["`updates_per_frame` must be a finite number above 0"]),
        (["updates_per_frame=inf"], ["`updates_per_frame` must be a finite number above 0", "inf"]),
        (["tau=0"], ["`tau` must be a number in (0, 1]", "0"]),
        (["gamma=1.5"], ["`gamma` must be a number in [0, 1]", "1.5"]),
        (["num_cells=0"], ["`num_cells`"]),
        (["batch_size=64", "buffer_size=32"], ["`batch_size` must be at most buffer_size (32)"]),
        (["total_frames=100", "warmup=100"], ["`total_frames`", "no update would ever be made"]),
        (["updates_per_frame=1e-6"], ["no update would ever be made"]),
        (["num_envs=4", "frames_per_batch=6"], ["`frames_per_batch`", "multiple", "(4)", "8"]),
        (["resume=nowhere"], ["`resume`", "nowhere"]),
        (["resume=" + 300 * "x"], ["`resume`", "File name too long", "xxx..."]),
        (["env=" + 300 * "x"], ["`env`", "registered Gymnasium id"]),
        (["frame_stack=4"], ["did you mean `pixels.frame_stack`?"]),
        (["learning_rate=1e-3"], ["here it is `actor_lr` or `critic_lr`"]),
        (["ent_coef=0.1"], ["here it is `alpha`"]),
        (["learning_starts=10"], ["here it is `warmup`"]),
        (["gradient_steps=1"], ["here it is `updates_per_frame`"]),
        (["algorithm=ppo", "clip_range=0.2"], ["here it is `clip_epsilon`"]),
        (["algorithm=ppo", "learning_rate=0.2"], ["here it is `lr`"]),
        (["Pendulum-v1"], ["'Pendulum-v1'", "write env=Pendulum-v1"]),
        (["my.module:make"], ["write env=my.module:make"]),
        (["ppo"], ["write algorithm=ppo"]),
        (["algorithm=ppo", "advantage=gea"], ["must be one of gae, vtrace (did you mean `gae`?)"]),
        (["threads=100000"], ["`threads` must be at most", "cores", "100000"]),
        (["num_envs=1000000"], ["`num_envs`", "total_frames", "1000000"]),
        (["buffer_size=1e15"], ["`buffer_size` must fit into memory", "GiB", "set buffer_size="]),
        (["num_cells=10000000000"], ["`num_cells` must fit into memory", "GiB"]),
        (["num_critics=1e9"], ["`num_critics` must fit into memory", "GiB"]),
        (["collector=async", "num_workers=1e5", "total_frames=1e9"], ["`num_workers` must be at"]),
        (["total_frames=1e23"], ["`total_frames` must be an integer of 1 or more, below 2**63"]),
        (["seed=18446744073709551616"], ["`seed`", "below 2**63"]),
        (["seed=\uff11\uff12"], ["`seed` must be an integer"]),
        (["gamma=\uff10"], ["`gamma` must be a number"]),
        (["train"], ["'train'", "train=value"]),
        (["--seed=3"], ["seed=3"]),
        (["seed=1", "seed=2"], ["`seed` is given twice"]),
        (["env=faults.fault_envs:absent"], ["faults.fault_envs:absent"]),
        (["env=no.such.module:make"], ["no.such.module:make"]),
        (["env=faults.fault_envs:not_an_environment"], ["int"]),
        (["env_kwargs.lenth=3"], ["lenth"]),
        (["env_kwargs=3"], ["env_kwargs.<name>"]),
    ],
)
def test_a_mistake_is_one_line(capsys, tmp_path, words, parts):
    given = {word.partition("=")[0] for word in words}
    small = [word for word in SMALL if word.partition("=")[0] not in given]
    folder = tmp_path / "run"
    if any(word.startswith("algorithm=ppo") for word in words):
        small.remove("warmup=20")
    err = refused(capsys, *small, f"folder={folder}", *words)
    for part in parts:
        assert part in err
    assert not folder.exists()


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("old_reset", ["`reset` of OldReset", "(observation, info)", "shimmy"]),
        ("old_seed", ["`reset` of OldSeed", "seed", "shimmy"]),
        ("old_step", ["`step` of OldStep", "got 4 values", "shimmy"]),
    ],
)
def test_the_older_interface_is_refused_with_the_way_out(capsys, tmp_path, name, parts):
    words = [*SMALL[1:], f"env=faults.fault_envs:{name}", f"folder={tmp_path / 'run'}"]
    err = refused(capsys, *words)
    for part in parts:
        assert part in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["broken", "broken_value", "broken_reset"])
def test_an_exception_in_a_users_environment_keeps_its_traceback(tmp_path, name):
    done = run([*SMALL[1:], f"env=faults.fault_envs:{name}", f"folder={tmp_path / 'run'}"])
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert re.search(r"fault_envs.py\", line \d+, in " + f"({name}|reset)", done.stderr)
    assert "on holiday" in done.stderr
    assert "UsageError" not in done.stderr


def test_an_algorithm_that_the_run_does_not_train_is_told_with_the_way_out(capsys, trained):
    err = refused(capsys, "algorithm=td3", f"resume={trained}", "total_frames=90")
    assert "the stored run trains algorithm=sac, got algorithm=td3; leave the word out" in err


def test_a_single_episode_has_no_spread(capsys, trained):
    code, out, _ = call(capsys, str(trained), "episodes=1", command=evaluate_command)
    assert code == 0
    assert re.fullmatch(r"1 episode: return -?[\d.]+, length 20\n", out)
    assert json.loads((trained / "evaluation.json").read_text())["return_ci95"] is None
    assert "inf" not in (trained / "evaluation.json").read_text().lower()


def test_an_evaluation_ends_where_the_words_or_the_run_say(capsys, trained):
    words = [str(trained), "episodes=2", "max_eval_steps=7"]
    code, out, err = call(capsys, *words, command=evaluate_command)
    assert code == 0
    assert "length 7.0" in out
    assert err.count("max_eval_steps") == 1


def test_training_evaluates_no_longer_than_it_is_told(capsys, tmp_path):
    words = [*SMALL, "total_frames=48", f"folder={tmp_path / 'run'}", "max_eval_steps=6"]
    assert call(capsys, *words)[0] == 0
    with (tmp_path / "run" / "metrics.csv").open() as file:
        assert {row["length_mean"] for row in csv.DictReader(file)} == {"6"}
    _, out, _ = call(capsys, str(tmp_path / "run"), command=evaluate_command)
    assert "length 6.0" in out


def test_every_name_of_ours_is_an_option():
    known = {name for cls in (RunConfig, *ALGORITHMS.values()) for name in options_of(cls)}
    for ours in other_names._OURS.values():
        assert {name.partition(".")[0] for name in ours} <= known


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 5")]
)
def test_memory_that_runs_out_is_one_line(capsys, error):
    def main(argv):
        raise error

    assert run_main(main, []) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: out of memory, lower batch_size")
    assert err.count("\n") == 1


def test_other_runtime_errors_keep_their_traceback():
    def main(argv):
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        run_main(main, [])


@pytest.mark.parametrize("word", ["device=cuda", "device=cuda:7"])
def test_a_gpu_that_is_not_there_is_refused(capsys, monkeypatch, tmp_path, word):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    err = refused(capsys, *SMALL, word, f"folder={tmp_path / 'run'}")
    assert "`device` must be present (0 CUDA devices are)" in err


def test_a_missing_extra_is_named(capsys, monkeypatch, tmp_path):
    # What Gymnasium raises, and what the import system says, where MuJoCo is not installed.
    find = importlib.util.find_spec

    def raises(*args, **kwargs):
        raise ImportError("No module named 'mujoco'")

    monkeypatch.setattr("gymnasium.make", raises)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "mujoco" else find(name, *a)
    )
    err = refused(capsys, *SMALL[1:], "env=Hopper-v5", f"folder={tmp_path / 'run'}")
    assert "pip install torchrl_elegant[mujoco]" in err


def test_a_folder_in_use_is_refused(capsys, trained):
    err = refused(capsys, *SMALL, "total_frames=48", f"folder={trained}")
    assert f"resume={trained}" in err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "`total_frames` must exceed the 48 frames"),
        (["total_frames=90", "env=faults.fault_envs:point"], "`env` must stay"),
        (["total_frames=90", "folder=elsewhere"], "`folder` must stay"),
        (["total_frames=90", "num_cells=16"], "`num_cells` cannot change on resume"),
        (["total_frames=90", "buffer_size=40"], "`buffer_size` cannot change on resume"),
        (["total_frames=90", "algorithm=modsac"], "algorithm=sac"),
    ],
)
def test_a_run_that_cannot_go_on_like_this_says_so(capsys, trained, words, part):
    before = (trained / "config.yaml").read_text(), (trained / "metrics.csv").read_text()
    assert part in refused(capsys, f"resume={trained}", *words)
    assert before == ((trained / "config.yaml").read_text(), (trained / "metrics.csv").read_text())


def test_a_word_changes_the_run_that_goes_on(capsys, tmp_path):
    folder = tmp_path / "run"
    assert call(capsys, *SMALL, "total_frames=48", f"folder={folder}")[0] == 0
    assert call(capsys, f"resume={folder}", "total_frames=64", "gamma=0.5")[0] == 0
    assert "gamma: 0.5" in (folder / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("config", "given", "threads"),
    [
        (SACConfig(num_cells=(64, 64)), 0, 1),
        (SACConfig(num_cells=(256,)), 0, 2),
        (SACConfig(num_cells=(64, 64), batch_size=1_024), 0, 2),
        (SACConfig(num_cells=(64, 64)), 3, 2),  # which the run sets itself, while it lasts
    ],
)
def test_narrow_networks_get_one_thread_unless_told_otherwise(config, given, threads):
    torch.set_num_threads(2)
    set_process(RunConfig(threads=given), config)
    assert torch.get_num_threads() == threads


def test_a_command_sets_its_process_before_it_trains(capsys, tmp_path):
    torch.set_num_threads(2)
    assert call(capsys, *SMALL, "total_frames=48", f"folder={tmp_path / 'run'}")[0] == 0
    assert torch.get_num_threads() == 1


def test_help_lists_every_option(capsys):
    code, out, err = call(capsys, "--help")
    assert (code, err) == (0, "")
    for name in (*RunConfig.__dataclass_fields__, "gamma", "resume", "algorithm"):
        assert f"  {name}=" in out


@pytest.mark.parametrize(
    ("algorithm", "env", "has_actor"),
    [
        ("sac", "Pendulum-v1", True),
        ("ppo", "Pendulum-v1", True),
        ("d3qn", "CartPole-v1", False),
        ("discrete_sac", "CartPole-v1", True),
    ],
)
def test_help_shows_what_the_algorithm_can_take(capsys, algorithm, env, has_actor):
    _, out, _ = call(capsys, "--help", f"algorithm={algorithm}")
    assert f"  env={env} " in out
    assert ("  hterm.horizon=" in out) == has_actor


def test_without_an_environment_it_learns_one_that_it_can(capsys, tmp_path):
    folder = tmp_path / "run"
    words = ["total_frames=60", "warmup=20", "num_cells=8", "batch_size=8", "eval_episodes=1"]
    quiet = ["logger=none", "progress=false", f"folder={folder}"]
    assert call(capsys, "algorithm=dqn", *words, *quiet)[0] == 0
    assert "env: CartPole-v1" in (folder / "config.yaml").read_text()
    more = ["total_frames=80", "progress=false", f"resume={folder}"]
    assert call(capsys, *more)[0] == 0
    config = DQNConfig(num_cells=(8,), batch_size=8, warmup=20)
    run = {"total_frames": 60, "eval_episodes": 1, "logger": "none", "progress": False}
    assert train(config, folder=str(tmp_path / "other"), **run).history


def test_a_real_process_prints_one_line_and_nothing_else():
    done = run(["totl_frames=5"])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: unknown option `totl_frames`: did you mean `total_frames`?\n"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (FloatingPointError("`reward` must be finite"), "error: `reward` must be finite\n"),
        (
            WorkerDiedError("worker 1 raised; its traceback:\nTraceback\n  x\nKeyError: 'a'\n"),
            "error: worker 1 raised; its traceback: KeyError: 'a'\n",
        ),
    ],
)
def test_a_run_that_cannot_go_on_is_one_line_and_exit_code_1(capsys, error, line):
    def main(words):
        raise error

    assert run_main(main, []) == 1
    assert capsys.readouterr().err == line


def test_an_error_of_the_program_keeps_its_traceback():
    def main(words):
        raise AttributeError("a defect")

    with pytest.raises(AttributeError):
        run_main(main, [])


@pytest.mark.parametrize("policy", ["final", "best"])
def test_evaluation_prints_mean_spread_and_confidence(capsys, trained, policy):
    words = (str(trained), "episodes=4", f"policy={policy}")
    code, out, _ = call(capsys, *words, command=evaluate_command)
    assert code == 0
    report = json.loads((trained / "evaluation.json").read_text())
    assert (report["episodes"], report["policy"]) == (4, policy)
    expected = (
        f"4 episodes: return {report['return_mean']:.2f} ± {report['return_std']:.2f} (std), "
        f"95 % confidence of the mean ± {report['return_ci95']:.2f}, length 20.0\n"
    )
    assert out.endswith(expected)
    with (trained / "evaluation.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["return"]) for row in rows] == report["returns"]
    assert [int(row["length"]) for row in rows] == report["lengths"] == [20] * 4


MINE = """
from dataclasses import dataclass

from torchrl_elegant.algorithms import SACConfig, register
from torchrl_elegant.algorithms.base import option


@register("mine")
@dataclass(frozen=True, kw_only=True)
class MyConfig(SACConfig):
    doubled: float = option(2.0, "what SAC lacks")
"""


def test_an_algorithm_of_another_package_lives_through_all_commands(tmp_path):
    package = tmp_path / "their"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "hidden.py").write_text(MINE)
    (package / "algos.py").write_text("import their.hidden")

    def go(*words, script="train_sac.py"):
        done = run(words, script=script, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done

    word = "algorithm=their.algos:mine"
    go(*SMALL, word, "doubled=3", "total_frames=48", "folder=run")
    config = tmp_path / "run" / "config.yaml"
    assert "algorithm: their.algos:mine\n" in config.read_text()
    go("resume=run", "total_frames=64", "doubled=4", word, SMALL[0])
    assert "algorithm: their.algos:mine\n" in config.read_text()
    assert "doubled: 4.0\n" in config.read_text()
    evaluated = go("run", "episodes=2", "trust=true", script="evaluate.py")
    assert evaluated.stdout.startswith("2 episodes")
    (package / "algos.py").write_text("import jux")
    assert "No module named 'jux'" in run(["resume=run", "trust=true"], cwd=tmp_path).stderr


@pytest.fixture
def registry() -> Iterator[None]:
    """Algorithms and modules that a test brings are gone after it."""
    before = dict(ALGORITHMS)
    yield
    ALGORITHMS.clear()
    ALGORITHMS.update(before)
    sys.modules.pop("yours", None)


@pytest.mark.usefixtures("registry")
def test_an_algorithm_of_another_package_is_explained_and_its_name_mended(
    capsys, tmp_path, monkeypatch
):
    (tmp_path / "yours.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    code, out, _ = call(capsys, "algorithm=yours:mine", "--help")
    assert code == 0
    assert "doubled=2.0" in out
    assert refused(capsys, "algorithm=yours:mein") == (
        "error: `algorithm` must be registered by yours, got `yours:mein`: did you mean `mine`?\n"
    )


def test_evaluation_of_what_is_no_run_is_refused(capsys, tmp_path, trained):
    def err(*words: str) -> str:
        return refused(capsys, *words, command=evaluate_command)

    assert "`run` must be a run folder" in err()
    assert "config.yaml" in err(str(tmp_path))
    assert "nowhere" in err("run=nowhere")
    assert "`episodes` must be an integer of 1 or more" in err(str(trained), "episodes=0")
    assert "best" in err(str(trained), "policy=worst")


def test_evaluation_before_the_first_checkpoint_is_refused(capsys, tmp_path, trained):
    for name in ("config.yaml", "metrics.csv"):
        (tmp_path / name).write_bytes((trained / name).read_bytes())
    err = refused(capsys, str(tmp_path), command=evaluate_command)
    assert "policy.pt" in err
    assert "first checkpoint" in err


@pytest.mark.parametrize("command", [evaluate_command, export_command])
def test_a_name_that_no_folder_can_have_is_refused(capsys, command):
    err = refused(capsys, "x" * 300, command=command)
    assert re.match(r"error: `run` must be .*\.\.\.x+'.*: File name too long; give another", err)


def test_a_film_is_written(capsys, trained):
    code, out, _ = call(capsys, str(trained), "episodes=1", "video=true", command=evaluate_command)
    assert code == 0
    assert f"video: {trained / 'video.gif'}" in out
    assert (trained / "video.gif").read_bytes().startswith(b"GIF89a")


@pytest.mark.parametrize("name", ["point", "Undrawn"])
def test_a_film_of_what_cannot_be_seen_is_refused(capsys, tmp_path, trained, name):
    for file in ("config.yaml", "metrics.csv", "policy.pt"):
        (tmp_path / file).write_bytes((trained / file).read_bytes())
    config = tmp_path / "config.yaml"
    config.write_text(config.read_text().replace("fault_envs:Drawn", f"fault_envs:{name}"))
    words = (str(tmp_path), "video=true", "trust=true")
    err = refused(capsys, *words, command=evaluate_command)
    assert "`video` must be false" in err
    assert not (tmp_path / "video.gif").exists()


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_an_evaluation_in_a_folder_that_takes_no_files_is_told(
    capsys, monkeypatch, trained, number
):
    def refuse(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    # The package gives this name to the function.
    module = importlib.import_module("torchrl_elegant.runs.evaluate")
    monkeypatch.setattr(module, "write_file", refuse)
    told = f"`run` must be where files can be written, got {str(trained)!r}: {os.strerror(number)}"
    code, out, err = call(capsys, str(trained), "episodes=1", command=evaluate_command)
    assert (code, out.startswith("1 episode: return"), err.count("\n")) == (2, True, 1)
    assert told in err
    assert told in refused(capsys, str(trained), "video=true", command=evaluate_command)


def test_a_film_without_its_package_is_refused(capsys, monkeypatch, trained):
    monkeypatch.setitem(sys.modules, "PIL", None)
    err = refused(capsys, str(trained), "video=true", command=evaluate_command)
    assert "pip install torchrl_elegant[video]" in err


def test_an_exception_in_a_users_environment_keeps_its_traceback_in_an_evaluation(trained):
    words = [str(trained), "env=faults.fault_envs:broken_value"]
    done = run(words, script="evaluate.py")
    assert done.returncode == 1
    assert re.search(r"fault_envs.py\", line \d+, in broken_value", done.stderr)
    assert "UsageError" not in done.stderr
