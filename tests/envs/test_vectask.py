"""Transitions of a VecTask in each style: exact, flagged where they are junk, and one's own."""

from __future__ import annotations

import ast
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from no_sync import NoSync
from scripted_vectask import HANGS, LIMIT, SLOW, ScriptedTask, falls_at
from torch.utils._python_dispatch import TorchDispatchMode
from torchrl.envs.utils import check_env_specs

from torchrl_elegant import PPOConfig, SACConfig, Trial
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs import BridgedTask, LocalTask, VecTaskEnv, make_env
from torchrl_elegant.envs.batched import vectask_server as server
from torchrl_elegant.functional import junk_of

HERE = str(Path(__file__).parent.parent)
STYLES = pytest.mark.parametrize("resets", server.STYLES)
WAYS = pytest.mark.parametrize("through", ["here", "bridged"])
NEXT_STEP = ("post_physics", "pre_physics")


class Lasting(BridgedTask):
    """Server that serves several environments, which would close it."""

    def close(self):
        pass


def bridged(resets):
    return Lasting(
        sys.executable,
        "scripted_vectask:ScriptedTask",
        {"resets": resets, "num_states": 3},
        resets=resets,
        path=[HERE],
    )


@pytest.fixture(scope="module")
def bridges():
    """A server for each style; they start side by side."""
    with ThreadPoolExecutor() as pool:
        made = dict(zip(server.STYLES, pool.map(bridged, server.STYLES), strict=True))
    yield made
    for bridge in made.values():
        BridgedTask.close(bridge)


@pytest.fixture
def source(request, resets, through):
    if through == "bridged":
        return request.getfixturevalue("bridges")[resets]
    return LocalTask(ScriptedTask(resets, num_states=3), resets=resets)


def first_steps(resets, first):
    """Steps that the task has counted at an episode's first observation."""
    return 1 if resets == "pre_physics" or (resets == "same_step" and first) else 0


def truth(resets, row, episode, first):
    """Steps, terminated and truncated of each transition of an episode."""
    at = first_steps(resets, first)
    while True:
        fallen, timed_out = at + 1 >= falls_at(row, episode), at + 1 >= LIMIT - 1
        yield at, fallen and not timed_out, timed_out
        at += 1
        if fallen or timed_out:
            return


def check_row(resets, row, steps):
    """Compares the played transitions of a row with the truth; gives how they ended."""
    seen, state, action = (steps[key].tolist() for key in ("observation", "state", "action"))
    after = {key: value.tolist() for key, value in steps["next"].items()}
    episode, ends, at = int(seen[0][1]), [], 0
    while at < len(seen):
        for begun, terminated, truncated in truth(resets, row, episode, at == 0):
            if at == len(seen):
                return ends
            pushed, over = min(max(action[at][0], -1.0), 1.0), terminated or truncated
            assert seen[at][:3] == [row, episode, begun]
            shown = [row, episode, begun + 1, pushed]
            if over and resets == "same_step":  # the true one is lost: never another episode's
                shown = seen[at]
            assert after["observation"][at] == pytest.approx(shown)
            assert after["reward"][at][0] == pytest.approx(10 * episode + begun + 1 + pushed)
            flags = [after[name][at][0] for name in ("terminated", "truncated", "done")]
            assert flags == [terminated, truncated, over]
            assert state[at] == [2 * x for x in seen[at][:3]]
            assert after["state"][at] == [2 * x for x in after["observation"][at][:3]]
            at += 1
            ends += [(terminated, truncated)] if over else []
        episode += 1
    return ends


@STYLES
@WAYS
def test_every_transition_is_exact(resets, source):
    env = VecTaskEnv(source)
    collector = SyncCollector(env, frames_per_batch=6 * 25, total_frames=6 * 50)
    assert collector.is_lean
    batch = torch.cat([part.clone() for part in collector], -1)
    junk, ends = junk_of(batch), set()
    for row in range(6):
        ends |= {*check_row(resets, row, batch[row][~junk[row]])}
    assert ends == {(True, False), (False, True)}
    spans = torch.zeros_like(junk)
    if resets in NEXT_STEP:
        spans[:, 1:] = batch["next", "done"][:, :-1, 0] & ~junk[:, :-1]
    assert torch.equal(junk, spans)
    assert batch["next", "truncated"][junk].all()
    assert not batch["next", "reward"][junk].any()
    last = torch.where(junk)
    before = batch["next", "observation"][last[0], last[1] - 1]
    assert torch.equal(batch["observation"][junk], before)
    done = batch["next", "done"][..., 0] & ~junk
    assert (batch["next", "step_count"][..., 0][done] >= 1).all()
    first = torch.cat([torch.ones_like(done[:, :1]), batch["next", "done"][:, :-1, 0]], 1)
    assert not batch["step_count"][..., 0][first].any()


@STYLES
@WAYS
def test_rows_are_reset_in_the_middle_of_an_episode(resets, source):
    """Those that are asked for, and no others; what leads there is junk."""
    env = VecTaskEnv(source)
    data = env.step(env.rand_action(env.reset()))["next"]
    rows = torch.tensor([1, 0, 0, 1, 0, 0], dtype=torch.bool).unsqueeze(-1) & ~data["done"]
    before = data["observation"].clone()
    for _ in range(2):  # asked twice, the same
        data = env.reset(data.clone().set("_reset", rows | data["done"]))
    if resets == "manual":
        assert not data["junk"].any()
        assert (data["observation"][rows[:, 0], 1] > before[rows[:, 0], 1]).all()
        return
    assert torch.equal(data["junk"][rows[:, 0]], torch.ones(int(rows.sum()), 1).bool())
    stepped = env.step(env.rand_action(data.clone()))["next"]
    assert stepped["truncated"][rows].all()
    data = env.reset(stepped.clone().set("_reset", stepped["done"]))
    assert (data["observation"][rows[:, 0], 1] == before[rows[:, 0], 1] + 1).all()
    assert not data["junk"][rows].any()
    others = ~(rows | stepped["done"])[:, 0]
    assert (data["observation"][others, 1] <= before[others, 1] + 1).all()


@STYLES
def test_the_environment_keeps_torchrls_rules(resets):
    check_env_specs(VecTaskEnv(LocalTask(ScriptedTask(resets, num_states=3), resets=resets)))


def leaves(data):
    return dict(data.items(True, True))


@STYLES
def test_live_buffers_do_not_reach_what_came_out(resets):
    task = ScriptedTask(resets, num_states=3)
    env = VecTaskEnv(LocalTask(task, resets=resets))
    data = env.rand_action(env.reset())
    stepped = env.step(data)
    kept = stepped.clone()
    buffers = [task.obs_buf, task.states_buf, task.rew_buf, task.reset_buf, task.terminate]
    for buffer in [*buffers, task.progress_buf, *task.extras.values()]:
        buffer.fill_(1)
    for key, value in leaves(stepped).items():
        assert torch.equal(value, kept[key]), key


class HostCopies(TorchDispatchMode):
    """Counts operations that bring values to the host."""

    names = frozenset({"_local_scalar_dense", "is_nonzero", "equal", "nonzero"})

    def __init__(self):
        super().__init__()
        self.count = self.seen = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().partition("::")[2].partition(".")[0]
        self.seen += 1
        self.count += name in self.names or (kwargs or {}).get("device") == torch.device("cpu")
        return func(*args, **(kwargs or {}))


class Quiet(ScriptedTask):
    """Does nothing itself, so that what is counted is the adapter's."""

    def step(self, actions):
        return self.obs_dict, self.rew_buf, self.reset_buf, self.extras

    def reset_done(self):
        return self.obs_dict, None


@STYLES
def test_nothing_leaves_the_device(resets):
    task = ScriptedTask(resets, num_states=3)
    env = VecTaskEnv(LocalTask(task, resets=resets))
    data = env.rand_action(env.reset())
    task.step(data["action"])
    task.__class__ = Quiet
    mask = torch.ones(6, 1, dtype=torch.bool)
    with HostCopies() as counter, NoSync():
        after = env._step(data)
        env._reset(after.select("done").set("_reset", mask))
    assert counter.seen > 10
    assert counter.count == 0
    with HostCopies() as counter:  # it can count
        after["reward"].sum().item()
    assert counter.count == 1


SMALL = {"num_cells": (8,), "batch_size": 16}
KEYS = {"actor_keys": ("observation",), "critic_keys": ("observation", "state")}


@STYLES
@WAYS
@pytest.mark.parametrize(
    "config",
    [PPOConfig(**SMALL, **KEYS), SACConfig(**SMALL, **KEYS, warmup=36, updates_per_frame=0.05)],
    ids=["ppo", "sac"],
)
def test_it_trains(config, resets, source):
    made = {"num_envs": 6, "total_frames": 108, "frames_per_batch": 36}
    with Trial(config, lambda: VecTaskEnv(source), **made) as trial:
        trial.train()
        assert trial.ledger.updates > 0
        assert trial.ledger.frames == 108
        if trial.store is not None:
            rows = trial.store[:]
            assert (rows["observation"][:, :2] == rows["next", "observation"][:, :2]).all()
            assert (len(rows) < 108) == (resets in NEXT_STEP)


# The bridge and its ends


def test_the_server_is_python_36():
    source = Path(server.__file__).read_text()
    ast.parse(source, feature_version=(3, 6))
    with pytest.raises(SyntaxError):
        ast.parse("(x := 1)", feature_version=(3, 6))
    imported = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    known = {
        "importlib",
        "json",
        "mmap",
        "os",
        "random",
        "signal",
        "sys",
        "threading",
        "time",
        "traceback",
        "typing",
    }
    assert imported == known | {"numpy", "torch"}


def test_an_interrupt_leaves_the_server_at_work(bridges):
    bridge = bridges["pre_physics"]
    os.kill(bridge._process.pid, signal.SIGINT)
    env = VecTaskEnv(bridge)
    assert env.step(env.rand_action(env.reset()))["next", "observation"].shape == (6, 4)


def drawn(seed):
    server.seed_all(seed)
    return [random.random(), np.random.rand(), float(torch.rand(1))]  # noqa: NPY002


def test_a_seed_fixes_every_stream_of_the_server():
    bridge = BridgedTask(
        sys.executable, "scripted_vectask:DrawnTask", resets="manual", seed=7, path=[HERE]
    )
    shown = bridge.begin().seen["observation"][0, :3].tolist()
    bridge.close()
    assert shown == pytest.approx(drawn(7))
    assert all(a != b for a, b in zip(drawn(7), drawn(8), strict=True))


def test_without_a_seed_no_stream_is_fixed():
    server.seed_all(3)
    first = drawn(None)
    server.seed_all(3)
    assert all(a != b for a, b in zip(first, drawn(None), strict=True))


@pytest.mark.parametrize("seed", [5, 0, None])
def test_isaac_gym_is_seeded_with_its_process(monkeypatch, seed):
    given = []

    class Source:
        sizes = server.sizes_of(ScriptedTask("manual"))
        resets, device = "manual", "cpu"

        def __init__(self, python, make, arguments, *, seed, **_):
            assert arguments["seed"] == seed
            given.append(seed)

    monkeypatch.setattr("torchrl_elegant.envs.batched.isaacgym_tasks.BridgedTask", Source)
    for _ in range(2):
        made = {"python": "python3.8", "seed": seed}
        make_env("isaacgym/Ant", 6, env_kwargs=made)
    assert given == [seed] * 2 if seed is not None else len({*given}) == 2


def stop(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("asked", [True, False])
def test_the_answer_to_an_interrupted_step_is_discarded(bridges, monkeypatch, asked):
    """The interrupt may come after the server was asked, or just before."""
    bridge = bridges["pre_physics"]
    never = torch.zeros(6, dtype=torch.bool)
    bridge.begin()
    if asked:
        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
    else:
        monkeypatch.setattr(bridge, "_say", stop)
    with pytest.raises(KeyboardInterrupt):
        bridge.step(torch.full((6, 1), SLOW), never)
    if asked:
        signal.signal(signal.SIGALRM, before)
    monkeypatch.undo()
    for action in (0.5, -0.5):
        shown = bridge.step(torch.full((6, 1), action), never).seen["observation"]
        assert shown[:, 3].tolist() == [action] * 6
    assert bridge.begin().seen["observation"].shape == (6, 4)


def test_a_killed_server_is_one_clear_error(bridges):
    bridge = bridges["manual"]
    env = VecTaskEnv(bridge)
    data = env.rand_action(env.reset())
    os.kill(bridge._process.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"`scripted_vectask:ScriptedTask` died in a step .*-9"):
        env.step(data)
    with pytest.raises(RuntimeError, match="is closed"):
        env.step(data)


def test_a_hung_server_is_one_clear_error_and_is_ended(bridges):
    bridge = bridges["same_step"]
    env = VecTaskEnv(bridge)
    data = env.reset().set("action", torch.full((6, 1), HANGS))
    bridge._timeout = 0.3
    with pytest.raises(RuntimeError, match=r"did not answer for 0\.3 seconds in a step"):
        env.step(data)
    assert bridge._process.poll() is not None


def test_shared_memory_has_no_name(bridges):
    process = bridges["post_physics"]._process
    opened = Path(f"/proc/{process.pid}/fd").iterdir()
    shared = [name for name in map(os.readlink, opened) if name.startswith("/dev/shm/")]
    assert shared
    assert all(name.endswith("(deleted)") for name in shared)


def test_a_task_that_cannot_be_made_tells_why(tmp_path):
    (tmp_path / "broken.py").write_text("def make():\n    raise ValueError('no such robot')\n")
    with pytest.raises(RuntimeError, match=r"failed in making its task[\s\S]*no such robot"):
        BridgedTask(sys.executable, "broken:make", resets="manual", path=[str(tmp_path)])
    with pytest.raises(ValueError, match="`python` must be an interpreter"):
        BridgedTask("/no/python3.8", "broken:make", resets="manual")
    with pytest.raises(ValueError, match="`resets` must be one of"):
        BridgedTask(sys.executable, "broken:make", resets="sometimes")
    with pytest.raises(ValueError, match=r"`device` must be one of the \d+ GPUs"):
        make_env("isaacgym/Ant", device="cuda:99", env_kwargs={"python": sys.executable})


def test_a_server_does_not_outlive_its_parent(tmp_path):
    """Though it is at work, and hears of nothing."""
    (tmp_path / "slow.py").write_text("import time\n\n\ndef make():\n    time.sleep(600)\n")
    script = f"""
import json, os, signal, subprocess, sys
requests, replies = os.pipe(), os.pipe()
spec = dict(path=[{str(tmp_path)!r}], first=[], make="slow:make", arguments={{}}, resets="manual")
given = [json.dumps(spec), str(requests[0]), str(replies[1]), "0", str(os.getpid())]
fds = (requests[0], replies[1])
print(subprocess.Popen([sys.executable, {server.__file__!r}, *given], pass_fds=fds).pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=False)
    pid = int(done.stdout)
    deadline = time.monotonic() + 20.0
    while Path(f"/proc/{pid}").exists() and not is_zombie(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_zombie(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


# Names and wrong input


def test_an_unknown_task_names_the_choices():
    with pytest.raises(ValueError, match=r"`resets` must be given for isaacgym/Walker.*post_phys"):
        make_env("isaacgym/Walker", 4, env_kwargs={"python": sys.executable})


def test_a_missing_simulator_says_what_to_do(monkeypatch):
    monkeypatch.delenv("ISAACGYM_PYTHON", raising=False)
    with pytest.raises(ImportError, match=r"isaacgym/Ant needs .*Python 3.8.*ISAACGYM_PYTHON"):
        make_env("isaacgym/Ant", 4)
    with pytest.raises(RuntimeError, match="No module named 'isaacgym'"):
        make_env("isaacgym/Ant", 4, env_kwargs={"python": sys.executable})


def test_a_step_without_time_outs_is_refused():
    task = ScriptedTask("post_physics")
    task.step = lambda actions: (task._shown(), task.rew_buf, task.reset_buf, {"other": 1})
    with pytest.raises(KeyError, match=r"must hold 'time_outs', got \['other'\]"):
        VecTaskEnv(LocalTask(task, resets="post_physics")).reset()


@STYLES
def test_observations_without_states_are_refused(resets):
    task = ScriptedTask(resets, num_states=3)
    task._shown = lambda: {"obs": task.obs_buf}
    env = VecTaskEnv(LocalTask(task, resets=resets))
    with pytest.raises(KeyError, match=r"`ScriptedTask` must hold 'states', got \['obs'\]"):
        env.reset()


@pytest.mark.parametrize(
    ("resets", "lacks", "told"),
    [
        ("post_physics", "num_obs", "`num_obs`"),
        ("pre_physics", "reset_buf", "`reset_buf`"),
        ("same_step", "reset_idx", "`reset_idx`"),
        ("same_step", None, "`progress_buf`"),
        ("manual", "reset_done", "`reset_done`"),
        ("sometimes", None, "`resets` must be one of"),
    ],
)
def test_what_a_task_lacks_is_named(resets, lacks, told):
    task = ScriptedTask("manual")
    names = ("num_envs", "num_obs", "num_acts", "device", "rl_device", "reset_buf")
    methods = ("step", "reset_done", "reset_idx")
    less = type("Less", (), {})()
    for name in {*names, *methods} - {lacks}:
        setattr(less, name, getattr(task, name))
    with pytest.raises((TypeError, ValueError), match=told):
        LocalTask(less, resets=resets)
