"""Driver of a VecTask, and the server that runs one for another process.

This file is run by the simulator's own interpreter. It keeps to Python 3.6, and needs NumPy and
torch alone.
"""

import importlib
import json
import mmap
import os
import random
import signal
import sys
import threading
import time
import traceback
from typing import Any, NamedTuple

import numpy as np

#: How tasks reset rows whose episode is over.
POST_PHYSICS, PRE_PHYSICS, SAME_STEP, MANUAL = "post_physics", "pre_physics", "same_step", "manual"
STYLES = (POST_PHYSICS, PRE_PHYSICS, SAME_STEP, MANUAL)
#: Parts of a task that each style calls for.
NEEDS = {
    POST_PHYSICS: ("reset_buf",),
    PRE_PHYSICS: ("reset_buf",),
    SAME_STEP: ("reset_idx", "progress_buf"),
    MANUAL: ("reset_buf", "reset_done"),
}

#: Numbers that a task tells of itself.
SIZES = ("num_envs", "num_obs", "num_states", "num_acts", "max_episode_length")

# One byte asks for a call, one byte says that it is done.
BEGIN, STEP, RESET_DONE, QUIT = b"B", b"S", b"R", b"Q"
ECHO = b"E"  # comes back as it is, after all earlier answers
READY, FAILED = b".", b"!"


class Signals(NamedTuple):
    """Outcome of a step of all rows."""

    seen: Any  # tensors [n, *] by name
    reward: Any  # [n]
    done: Any  # [n], for which there is a reset
    time_out: Any  # [n], of those that are done


def sizes_of(task: Any) -> "dict[str, int]":
    """Numbers of rows, observations, states, actions and steps of a task.

    >>> from types import SimpleNamespace
    >>> sizes_of(SimpleNamespace(num_envs=2, num_obs=3, num_acts=1))
    {'num_envs': 2, 'num_obs': 3, 'num_states': 0, 'num_acts': 1, 'max_episode_length': 0}
    """
    optional = ("num_states", "max_episode_length")
    missing = [name for name in SIZES if name not in optional and not hasattr(task, name)]
    if missing:
        raise TypeError(
            "`task` must have the interface of IsaacGymEnvs' VecTask, got "
            f"`{type(task).__name__}` without `{missing[0]}`"
        )
    return {name: int(getattr(task, name, 0)) for name in SIZES}


class TaskDriver(object):  # noqa: UP004
    """Starts, steps and resets a VecTask by its style.

    Args:
        task: anything with the interface of IsaacGymEnvs' VecTask.
        resets: one of ``STYLES``.
    """

    def __init__(self, task: Any, resets: str) -> None:
        self.task, self.resets, self.sizes = task, resets, sizes_of(task)
        if resets not in STYLES:
            raise ValueError(f"`resets` must be one of {STYLES}, got `{resets}`")
        missing = [name for name in NEEDS[resets] if not hasattr(task, name)]
        if missing:
            raise TypeError(
                f"`task` must have `{missing[0]}` with resets='{resets}', got "
                f"`{type(task).__name__}`"
            )
        if resets == SAME_STEP and not self.sizes["max_episode_length"]:
            raise TypeError(
                "`task` must have `max_episode_length` with resets='same_step', whose time-outs "
                f"are counted, got `{type(task).__name__}`"
            )

    def begin(self) -> Signals:
        """Starts all rows anew; a row that is done is not started yet."""
        import torch  # late: Isaac Gym must be imported first

        task = self.task
        actions = torch.zeros(self.sizes["num_envs"], self.sizes["num_acts"], device=task.rl_device)
        if self.resets == MANUAL:
            task.reset_buf.fill_(1)
            zeros = torch.zeros(self.sizes["num_envs"], device=task.rl_device)
            return Signals(self._whole(task.reset_done()[0]), zeros, zeros, zeros)
        if self.resets == SAME_STEP:
            task.reset_idx(torch.arange(self.sizes["num_envs"], device=task.device))
        else:
            task.reset_buf.fill_(1)
        # Tasks compute observations in a step, and reset rows there if they are marked.
        return self.step(actions, actions.new_zeros(len(actions), dtype=torch.bool))

    def step(self, actions: Any, marks: Any) -> Signals:
        """Steps all rows: observations, rewards, ends, and ends by a time limit.

        Rows in ``marks``, flags ``[n]``, are reset by the way, wherever their episode is.
        """
        task = self.task
        if self.resets == SAME_STEP:
            task.progress_buf.masked_fill_(marks, self.sizes["max_episode_length"])
        else:
            task.reset_buf.masked_fill_(marks, 1)
        seen, reward, done, extras = task.step(actions)
        seen = self._whole(seen)
        if self.resets == MANUAL and "terminate" in extras:
            return Signals(seen, reward, done, extras["terminate"] == 0)
        if "time_outs" not in extras:
            raise KeyError(f"`extras` of a step must hold 'time_outs', got {sorted(extras)}")
        return Signals(seen, reward, done, extras["time_outs"])

    def reset_done(self, rows: Any) -> Any:
        """Resets exactly ``rows``, flags ``[n]``, of a task of the style ``manual``."""
        self.task.reset_buf.copy_(rows)
        return self._whole(self.task.reset_done()[0])

    def _whole(self, seen: Any) -> Any:
        for name in ("obs", "states") if self.sizes["num_states"] else ("obs",):
            if name not in seen:
                raise KeyError(
                    f"the observations of `{type(self.task).__name__}` must hold '{name}', got "
                    f"{sorted(seen)}; a task without states has num_states = 0"
                )
        return seen


def layout(sizes: "dict[str, int]") -> "tuple[list[tuple[str, str, int, Any]], int]":
    """Name, type, offset and shape of each array in the shared memory, and its whole size.

    >>> arrays, size = layout(dict(num_envs=2, num_obs=3, num_states=0, num_acts=1))
    >>> arrays[1], size
    (('observation', 'float32', 64, (2, 3)), 448)
    """
    rows = sizes["num_envs"]
    found, offset = [], 0
    for name, dtype, shape in (
        ("action", "float32", (rows, sizes["num_acts"])),
        ("observation", "float32", (rows, sizes["num_obs"])),
        ("state", "float32", (rows, sizes["num_states"])),
        ("reward", "float32", (rows,)),
        ("done", "bool", (rows,)),
        ("time_out", "bool", (rows,)),
        ("marks", "bool", (rows,)),
    ):
        found.append((name, dtype, offset, shape))
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        offset += -(-max(size, 1) // 64) * 64  # each on a cache line of its own
    return found, offset


def arrays_in(memory: Any, sizes: "dict[str, int]") -> "dict[str, np.ndarray]":
    """Arrays of ``layout`` over one piece of memory."""
    return {
        name: np.ndarray(shape, dtype, memory, offset)
        for name, dtype, offset, shape in layout(sizes)[0]
    }


class Server(object):  # noqa: UP004
    """Answers requests for a driver: tensors through shared memory, one byte each way.

    Args:
        driver: of the task.
        requests, replies: file descriptors of two pipes.
        memory: that of the shared memory.
    """

    def __init__(self, driver: TaskDriver, requests: int, replies: int, memory: int) -> None:
        import torch

        self._driver, self._requests, self._replies = driver, requests, replies
        told = json.dumps(driver.sizes).encode()
        os.write(replies, READY + len(told).to_bytes(4, "little") + told)
        if os.read(requests, 1) != READY:  # the memory has its size now
            raise SystemExit(0)
        self._memory = mmap.mmap(memory, layout(driver.sizes)[1])
        arrays = arrays_in(self._memory, driver.sizes)
        self._shared = {name: torch.from_numpy(array) for name, array in arrays.items()}
        self._here = driver.task.rl_device

    def serve(self) -> None:
        """Answers until the other end closes, or asks to quit."""
        answers = {BEGIN: self._begin, STEP: self._step, RESET_DONE: self._reset_done}
        while True:
            asked = os.read(self._requests, 1)
            if asked in (b"", QUIT):
                return
            if asked == ECHO:
                os.write(self._replies, ECHO)
                continue
            answers[asked]()
            os.write(self._replies, READY)

    def _begin(self) -> None:
        self._leave(*self._driver.begin())

    def _step(self) -> None:
        # A copy: a task may keep the actions that it was given.
        actions = self._shared["action"].to(self._here, copy=True)
        self._leave(*self._driver.step(actions, self._shared["marks"].to(self._here)))

    def _reset_done(self) -> None:
        self._leave_seen(self._driver.reset_done(self._shared["marks"].to(self._here)))

    def _leave(self, seen: Any, reward: Any, done: Any, time_out: Any) -> None:
        self._leave_seen(seen)
        for name, value in (("reward", reward), ("done", done), ("time_out", time_out)):
            self._shared[name].copy_(value)

    def _leave_seen(self, seen: Any) -> None:
        self._shared["observation"].copy_(seen["obs"])
        if self._driver.sizes["num_states"]:
            self._shared["state"].copy_(seen["states"])


def leave_with(parent: int) -> None:
    """Ends this process soon after ``parent`` has, whatever it is doing."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def seed_all(seed: "int | None") -> None:
    """Seeds Python, NumPy and torch on all devices; None gives streams that no seed fixes."""
    import torch  # late: Isaac Gym must be imported first

    random.seed(seed)
    np.random.seed(None if seed is None else seed % 2**32)  # noqa: NPY002
    if seed is None:
        torch.seed()  # a new process has a fixed one otherwise
    else:
        torch.manual_seed(seed)


def made(spec: "dict[str, Any]") -> Any:
    """Task that a description names: modules to import first, a seed, ``make``, its arguments."""
    sys.path[:1] = spec["path"]  # in the place of this file's folder
    for name in spec["first"]:
        importlib.import_module(name)
    seed_all(spec["seed"])
    module, _, name = spec["make"].partition(":")
    return getattr(importlib.import_module(module), name)(**spec["arguments"])


def main(spec: str, requests: str, replies: str, memory: str, parent: str) -> int:
    """Makes the task and serves it; a failure is told with its traceback."""
    leave_with(int(parent))
    # Ctrl-C is for the other end, which may want to save first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        described = json.loads(spec)
        driver = TaskDriver(made(described), described["resets"])
        Server(driver, int(requests), int(replies), int(memory)).serve()
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
        os.write(int(replies), FAILED)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
