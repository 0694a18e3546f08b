"""Memory and processes of a run, held against the machine before networks and buffers are made.

The sizes are lower bounds: what is refused could not have run, and what is let pass may yet turn
out to be too large.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
from torchrl.data import TensorSpec
from torchrl.envs import EnvBase

from torchrl_elegant.algorithms import AlgorithmConfig
from torchrl_elegant.config.machine import (
    available_memory,
    require_cores,
    require_memory,
    total_memory,
)
from torchrl_elegant.config.options import options_of
from torchrl_elegant.envs import BOOKKEEPING_KEYS
from torchrl_elegant.trainers.run_config import RunConfig

# A process with torch in it, beside what it shares with others; a row without observations.
_PROCESS, _ROW = 100 << 20, 32
# Bytes of a parameter: a weight of each network, and for those that learn a gradient and moments.
_PARAMETER = 10
# Bytes of an activation: it is kept for the way back, where its gradient joins it.
_ACTIVATION = 8


def check_processes(run: RunConfig) -> None:
    """Refuse more processes than cores and memory bear; and rows that no environment could fill.

    >>> check_processes(RunConfig(collector="async", num_workers=10**6))
    Traceback (most recent call last):
    torchrl_elegant.config.text.UsageError: `num_workers` must be at most ...
    """
    workers = 0 if run.collector == "sync" else run.num_workers
    inside = run.num_envs if run.env_backend == "parallel" else 0
    count = inside if not workers else workers * (1 + inside)
    name = "num_envs" if inside > workers else "num_workers"
    if count:
        require_cores(name, count, f"{count} processes")
        require_memory(name, count * _PROCESS, f"{count} processes")
    rows = max(workers, 1) * max(run.num_envs, run.frames_per_batch or 0)
    name = "frames_per_batch" if (run.frames_per_batch or 0) > run.num_envs else "num_envs"
    require_memory(name, rows * _ROW, f"{rows} rows")


def check_memory(run: RunConfig, config: AlgorithmConfig, env: EnvBase) -> None:
    """Refuse networks, rollouts and stores that memory cannot hold.

    Args:
        run: with ``frames_per_batch`` filled in.
        config: the algorithm's options.
        env: tells the sizes of observations and actions.
    """
    there = _there(env.device)
    _check_stores(run, config, env, there)
    _check_rollout(run, env)
    _check_networks(run, config, env, there)


def _there(device: torch.device | None) -> tuple[int, int]:
    """Bytes that are left where the learner is, and all that there are."""
    if device is None or device.type != "cuda":
        return available_memory(), total_memory()
    return torch.cuda.mem_get_info(device)


def _check_stores(
    run: RunConfig, config: AlgorithmConfig, env: EnvBase, there: tuple[int, int]
) -> None:
    seen, acted = _row_bytes(env, env.full_observation_spec), _row_bytes(env, env.full_action_spec)
    for name, rows, observations in config.stores():
        each = int(observations * seen + acted) + _ROW // 2
        # Pages are taken as rows come, but the address space at once.
        touched = each * min(rows, run.total_frames)
        for needed, limit in ((touched, there[0]), (each * rows, there[1])):
            most = max(1, limit // (2 * each))
            given, way_out = f"{rows} rows of {each:,} bytes", f"set {name}={most} or less"
            if run.pixels is not None and run.pixels.resize is None:
                way_out += ", or make pictures smaller, as pixels.resize=84"
            require_memory(name, needed, given, way_out, there=limit)


def _check_rollout(run: RunConfig, env: EnvBase) -> None:
    assert run.frames_per_batch is not None
    specs = (env.full_observation_spec, env.full_action_spec, env.full_reward_spec)
    each = sum(_row_bytes(env, spec) for spec in specs) * 2 + _ROW
    workers = 1 if run.collector == "sync" else run.num_workers
    rows = workers * run.frames_per_batch
    name = "num_envs" if run.num_envs >= run.frames_per_batch else "frames_per_batch"
    require_memory(name, rows * each, f"batches of {rows} rows of {int(each):,} bytes")


def _check_networks(
    run: RunConfig, config: AlgorithmConfig, env: EnvBase, there: tuple[int, int]
) -> None:
    inputs, hidden = _row_numbers(env), config.hidden_size if config.recurrent else 0
    sizes = [hidden or inputs, *config.num_cells]
    # A memory has three gates.
    weights = sum(a * b for a, b in pairwise(sizes)) + 3 * hidden * (inputs + hidden)
    rows = max(config.batch_size, run.num_envs)
    layers = rows * (sum(config.num_cells) + 8 * hidden)
    needed = config.network_count * (weights * _PARAMETER + layers * _ACTIVATION)
    names = ["num_cells", "batch_size", "num_critics", *["hidden_size"] * config.recurrent]
    name = _furthest(config, names)
    given = f"{config.network_count} networks of {config.num_cells} cells on {rows} rows at a time"
    require_memory(name, needed, given, there=there[0])
    if config.hterm is not None:
        hterm, seen = config.hterm, _row_bytes(env, env.full_observation_spec)
        each = seen + sum(config.num_cells) * _ACTIVATION
        name = _furthest(hterm, ["slices", "horizon"])
        given = f"{hterm.slices} slices of {hterm.horizon} steps at a time"
        taken = hterm.slices * hterm.horizon * each
        require_memory(f"hterm.{name}", taken, given, there=there[0])


def _furthest(config: Any, names: Iterable[str]) -> str:
    """The option that is larger than its default by the largest factor."""
    options = options_of(type(config))

    def factor(name: str) -> float:
        return _size(getattr(config, name)) / max(1, _size(options[name].default))

    return max((name for name in names if name in options), key=factor)


def _size(value: Any) -> int:
    return sum(value) if isinstance(value, (tuple, list)) else int(value)


def _row_bytes(env: EnvBase, spec: TensorSpec) -> float:
    """Bytes of the entries of ``spec`` in one row of ``env``."""
    return sum(_count(leaf) * leaf.dtype.itemsize for leaf in _leaves(spec)) / _rows(env)


def _row_numbers(env: EnvBase) -> int:
    """Numbers that a network reads of one row; pictures go through an encoder first."""
    seen = _leaves(env.full_observation_spec)
    leaves = [leaf for leaf in seen if leaf.ndim - env.batch_dims < 3]
    return int(sum(map(_count, leaves)) / _rows(env))


def _leaves(spec: TensorSpec) -> list[TensorSpec]:
    found = spec.items(True, True)
    # Counts of the environment's own are not learned from.
    return [leaf for key, leaf in found if leaf.dtype is not None and key not in BOOKKEEPING_KEYS]


def _count(leaf: TensorSpec) -> int:
    return math.prod(leaf.shape)


def _rows(env: EnvBase) -> int:
    return max(1, env.batch_size.numel())
