"""Names in a stored configuration are data until somebody trusts them."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import gymnasium
import pytest
import torch
from faults.fault_envs import Point, point
from quiet_runs import QUIET
from tensordict import TensorDict
from torch import nn
from torchrl.checkpoint import CheckpointError

from torchrl_elegant.algorithms import SACConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs import resume, train, trust
from torchrl_elegant.runs.checkpoints import Checkpoints
from torchrl_elegant.runs.evaluate import evaluate, film
from torchrl_elegant.runs.files import write_digests
from torchrl_elegant.runs.train import run_with, stored_run
from torchrl_elegant.runs.trial import run_config
from torchrl_elegant.runs.trust import Trust

SMALL = SACConfig(num_cells=(8,), batch_size=8, warmup=20)
REFUSED = "`trust` must be true to follow"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A short run on an environment that has a name."""
    words = {"total_frames": 32, "eval_episodes": 1, **QUIET}
    return train(SMALL, point, folder=str(tmp_path / "run"), **words).folder


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has trained on nothing yet."""
    monkeypatch.setattr(trust, "_KNOWN", set())


def rewritten(folder: Path, *pairs: tuple[str, str]) -> Path:
    file = folder / "config.yaml"
    text = file.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    return folder


def as_a_command_does(folder: Path) -> None:
    _, run, config = stored_run(folder)
    run_with(run, config, folder)


ATTACKS = {
    "call": (("env: faults.fault_envs:point", "env: os:system"), "command: touch {mark}"),
    "import": (("env: faults.fault_envs:point", "env: evil_module:make"), None),
    "id": (("env: faults.fault_envs:point", "env: evil_module:Evil-v0"), None),
    "wrapper": (
        ("env: faults.fault_envs:point", "env: GymV26Environment-v0"),
        "env_id: evil_module:Evil-v0",
    ),
    "algorithm": (("algorithm: sac", "algorithm: evil_module:sac"), None),
}


@pytest.fixture(params=ATTACKS)
def attack(request, folder, tmp_path, monkeypatch) -> tuple[str, Path]:
    """A folder whose configuration would leave a mark, were its names followed."""
    mark = tmp_path / "mark"
    (tmp_path / "evil_module.py").write_text(f"open({str(mark)!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    renamed, argument = ATTACKS[request.param]
    rewritten(folder, renamed)
    if argument:
        text = argument.format(mark=mark)
        rewritten(folder, ("env_kwargs: {}", f"env_kwargs: {{{text}}}"))
    yield request.param, mark
    sys.modules.pop("evil_module", None)


@pytest.mark.parametrize("use", [evaluate, film])
def test_evaluating_a_strangers_folder_runs_no_code(attack, folder, use):
    name, mark = attack
    if name == "algorithm":
        # A policy needs no algorithm: its name is not even looked at.
        assert evaluate(folder, episodes=1)
    else:
        with pytest.raises(UsageError, match=REFUSED):
            use(folder)
    assert not mark.exists()


def test_resuming_a_strangers_folder_runs_no_code(attack, folder):
    _, mark = attack
    before = (folder / "config.yaml").read_bytes(), (folder / "metrics.csv").read_bytes()
    with pytest.raises(UsageError, match=rf"{REFUSED}.*set trust=true"):
        resume(folder, total_frames=48)
    with pytest.raises(UsageError, match=REFUSED):
        as_a_command_does(folder)
    assert not mark.exists()
    assert before == (
        (folder / "config.yaml").read_bytes(),
        (folder / "metrics.csv").read_bytes(),
    )


@pytest.mark.parametrize("attack", ["call", "import", "algorithm"], indirect=True)
def test_the_attacks_are_real(attack, folder):
    _, mark = attack
    with pytest.raises(UsageError):
        resume(folder, total_frames=48, trust=True)
    assert mark.exists()


def test_the_environment_of_a_callable_is_no_word_for_the_stored_name(folder, tmp_path):
    rewritten(folder, ("env: faults.fault_envs:point", "env: os:system"))
    resume(folder, total_frames=48, env_factory=point)
    with pytest.raises(UsageError, match=REFUSED):
        resume(folder, total_frames=64)


@pytest.mark.usefixtures("stranger")
def test_a_name_is_followed_once_it_is_trusted_or_given_again(folder):
    trust._KNOWN.clear()
    for refused in (partial(resume, total_frames=48), evaluate):
        with pytest.raises(UsageError, match=r"'faults\.fault_envs:point', which would run code"):
            refused(folder)
    assert evaluate(folder, episodes=1, trust=True)
    assert evaluate(folder, episodes=1, env_factory=point)
    assert evaluate(folder, episodes=1, trust=Trust(module="faults.fault_envs"))
    assert resume(folder, total_frames=48, trust=True).history
    with pytest.raises(UsageError, match=REFUSED):
        resume(folder, total_frames=64)
    assert resume(folder, total_frames=64, env="faults.fault_envs:point").history
    assert resume(folder, total_frames=80).history  # given again in this process
    assert evaluate(folder, episodes=1)


def test_what_this_process_trained_needs_no_trust(folder):
    assert evaluate(folder, episodes=1)
    assert resume(folder, total_frames=48).history


def test_what_this_process_trained_is_trusted_with_its_own_arguments_only(tmp_path, monkeypatch):
    # Another test may have given the name, with any arguments.
    monkeypatch.setattr(trust, "_KNOWN", type(trust._KNOWN)())
    words = {"total_frames": 32, "eval_episodes": 1, **QUIET}
    run = {"folder": str(tmp_path / "run"), "env_kwargs": {"length": 5}}
    folder = train(SMALL, point, **run, **words).folder
    assert evaluate(folder, episodes=1)
    rewritten(folder, ("length: 5", "length: 6"))
    with pytest.raises(UsageError, match=REFUSED):
        evaluate(folder, episodes=1)


@pytest.mark.usefixtures("stranger")
def test_ids_and_our_own_names_need_no_trust(monkeypatch):
    assert Trust().environment("CartPole-v1") == "CartPole-v1"
    assert Trust().environment("elegant/chasing") == "elegant/chasing"
    assert Trust().environment("pettingzoo/mpe2:simple_spread_v3")
    assert Trust().environment("pettingzoo/butterfly/pistonball-v6")
    # Gymnasium would import the module, but it is there and has registered the id.
    monkeypatch.setitem(gymnasium.registry, "Mine-v0", None)
    assert Trust().environment(f"{__name__}:Mine-v0")
    for name in ("not_there:Mine-v0", "pettingzoo/os:system", "pettingzoo/mpe2:make"):
        with pytest.raises(UsageError, match=REFUSED):
            Trust().environment(name)


@pytest.mark.usefixtures("stranger")
@pytest.mark.parametrize("name", ["sys", "Path", "sys.exit", "nothing", "train"])
def test_a_named_module_vouches_only_for_what_it_defines(name):
    named = Trust(module=__name__)
    assert named.environment(f"{__name__}:rewritten")
    with pytest.raises(UsageError, match=REFUSED):
        named.environment(f"{__name__}:{name}")
    with pytest.raises(UsageError, match=REFUSED):
        named.environment("os:system")


class Maker:
    """A callable without a name that leads back to it."""

    def __call__(self) -> Point:
        return Point()

    make = __call__


def maker():
    return lambda: Point()


@pytest.mark.parametrize(
    ("env", "name"),
    [
        (Point, "faults.fault_envs:Point"),
        (maker(), f"{__name__}:maker.<locals>.<lambda>"),
        (partial(point, 5), "functools:<partial>"),
        (Maker(), f"{__name__}:<Maker>"),
        (Maker().make, f"{__name__}:<Maker.__call__>"),
    ],
)
def test_the_name_of_a_callable_leads_back_to_it_or_says_that_it_does_not(env, name):
    assert run_config(SMALL, env).env == name


@pytest.mark.parametrize("env", [maker(), partial(point, 5), Maker()])
def test_a_callable_without_a_name_is_asked_for(tmp_path, env):
    words = {"total_frames": 32, "eval_episodes": 1, **QUIET}
    folder = train(SMALL, env, folder=str(tmp_path / "run"), **words).folder
    for refused in (partial(resume, total_frames=48), evaluate):
        with pytest.raises(UsageError, match=r"no name leads back to; set env=.*env_factory="):
            refused(folder)
        with pytest.raises(UsageError, match=r"or env_factory="):
            refused(folder, trust=True)
    assert evaluate(folder, episodes=1, env_factory=env)
    assert resume(folder, total_frames=48, env_factory=env).history


@pytest.mark.usefixtures("stranger")
def test_what_a_script_defined_is_asked_for_by_its_file(folder):
    rewritten(
        folder,
        ("env: faults.fault_envs:point", "env: __main__:point"),
        ("algorithm: sac", "algorithm: __main__:mine"),
    )
    for trusted in (False, True):
        with pytest.raises(UsageError, match=r"registered by __main__.*as module=my_file"):
            resume(folder, trust=trusted)
        with pytest.raises(UsageError, match=r"script or notebook.*module=my_file.*env_factory="):
            evaluate(folder, trust=trusted)
    named = Trust(module="faults.fault_envs")
    assert evaluate(folder, episodes=1, trust=named)
    rewritten(folder, ("algorithm: __main__:mine", "algorithm: sac"))
    assert resume(folder, total_frames=48, trust=named).history
    assert "env: faults.fault_envs:point\n" in (folder / "config.yaml").read_text()


class Mark:
    """Pickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_a_checkpoint_in_a_form_that_holds_pickles_is_refused(tmp_path):
    """TorchRL's adapter takes whatever form it finds, and TensorDict's own holds pickles."""
    mark = tmp_path / "mark"
    saves = Checkpoints(tmp_path / "c", keep_last=1, components={"net": nn.Linear(2, 1)})
    path = saves.save(1, {})
    (component,) = (path / "components").glob("*-net")
    (component / "state.pt").unlink()
    evil = TensorDict({"x": torch.ones(1)}).set_non_tensor("y", Mark(mark))
    evil.memmap(component / "state")
    (component / "state.json").write_text("{}")
    write_digests(path)
    with pytest.raises(CheckpointError, match=r"must hold state\.pt, got none"):
        saves.load(path)
    assert not mark.exists()
    # The control: it does run where the form is taken.
    TensorDict.load_memmap(component / "state")
    assert mark.exists()


def test_a_pickle_in_a_checkpoint_is_not_read(tmp_path):
    mark = tmp_path / "mark"
    saves = Checkpoints(tmp_path / "c", keep_last=1, components={"net": nn.Linear(2, 1)})
    path = saves.save(1, {})
    (file,) = (path / "components").glob("*-net/state.pt")
    torch.save({"weight": Mark(mark)}, file)
    write_digests(path)
    with pytest.raises(CheckpointError, match="Weights only load failed"):
        saves.load(path)
    assert not mark.exists()
