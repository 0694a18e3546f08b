"""Checked arguments of a collector with workers, and the parts that are made from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from tensordict import NestedKey, TensorDictBase
from torch import nn
from torchrl.envs import EnvBase

from torchrl_elegant.collectors.sync import SyncCollector
from torchrl_elegant.collectors.workers.pacing import Gates
from torchrl_elegant.collectors.workers.rings import RowRings
from torchrl_elegant.collectors.workers.weights import SharedWeights
from torchrl_elegant.collectors.workers.worker import MESSAGE_BYTES, WorkerFactory, WorkerLink

#: Options of `SyncCollector` that TorchRL's collectors with workers do not know.
_OWN_OPTIONS = {"check_finite"}
#: Options that reach the collector inside each worker unchanged.
WORKER_OPTIONS = _OWN_OPTIONS | {
    "auto_register_policy_transforms",
    "compact_obs",
    "compile_policy",
    "device",
    "env_device",
    "exploration_type",
    "max_frames_per_traj",
    "policy_device",
    "postproc",
    "reset_at_each_iter",
    "set_truncated",
    "storing_device",
    "trust_policy",
}
_ROWS_PER_RING = 256  # small rollouts are moved into the buffer together, up to this many rows

Policy: TypeAlias = nn.Module | Callable[[TensorDictBase], TensorDictBase]


class WorkerArguments:
    """Environment factories, a copy of the policy, and one row as an example.

    Args:
        create_env_fn: one factory per worker, or one for all; an environment may be batched.
        policy: acts in the workers, as a copy on the CPU.
        num_workers: number of workers, if there is one factory.
        frames_per_batch: frames of a rollout of one worker.
        keys: keys of the rows to keep; `None` for all.
        options: further arguments of the workers' collectors.
    """

    def __init__(
        self,
        create_env_fn: Callable[[], EnvBase] | Sequence[Callable[[], EnvBase]],
        policy: Policy | None,
        num_workers: int | None,
        frames_per_batch: int,
        keys: Sequence[NestedKey] | None,
        options: Mapping[str, Any],
    ) -> None:
        unknown = sorted(options.keys() - WORKER_OPTIONS)
        if unknown:
            raise TypeError(f"options must be among {sorted(WORKER_OPTIONS)}, got {unknown}")
        self.env_fns = _factories(create_env_fn, num_workers)
        self.workers = len(self.env_fns)
        copy = deepcopy(policy)
        self.policy = copy.to("cpu") if isinstance(copy, nn.Module) else copy
        self.rows = frames_per_batch
        self._own = {name: options[name] for name in _OWN_OPTIONS & options.keys()}
        #: Options for TorchRL's collector with workers, which hands them on.
        self.options = {name: options[name] for name in options.keys() - _OWN_OPTIONS}
        self._row = self._example(keys)

    def link(self, gates: Gates, *, init_random_frames: int) -> WorkerLink:
        """Memory and locks that the parent and its workers share."""
        slots = max(2, -(-_ROWS_PER_RING // self.rows))
        return WorkerLink(
            gates=gates,
            rings=RowRings(self._row, workers=self.workers, rows=self.rows, slots=slots),
            weights=SharedWeights(self.policy) if isinstance(self.policy, nn.Module) else None,
            messages=torch.zeros(self.workers, MESSAGE_BYTES, dtype=torch.uint8).share_memory_(),
            init_random_frames=init_random_frames,
        )

    def factory(
        self,
        link: WorkerLink,
        *,
        seed: int | None,
        frames_done: int,
        threads: int,
        trajectory_ids: Literal["shared", "own"],
    ) -> WorkerFactory:
        """Factory of the workers' collectors; `seed` is that of the run."""
        if threads < 1:
            raise ValueError(f"`threads_per_worker` must be at least 1, got {threads}")
        # A run that resumes draws other streams than the ones it has already used.
        root = np.random.SeedSequence(None if seed is None else [seed, frames_done])
        return WorkerFactory(
            link=link,
            # 31 bits: every simulator takes such a seed.
            seeds=[int(child.generate_state(1)[0] >> 1) for child in root.spawn(self.workers)],
            threads=threads,
            options=self._own,
            trajectory_ids=(
                trajectory_ids if ("collector", "traj_ids") in self._row.keys(True) else "none"
            ),
        )

    def _example(self, keys: Sequence[NestedKey] | None) -> TensorDictBase:
        inner = SyncCollector(
            self.env_fns[0],
            deepcopy(self.policy),
            frames_per_batch=self.rows,
            total_frames=-1,
            **self._own,
            **self.options,
        )
        self.envs = inner.n_env
        try:
            if inner.env._has_dynamic_specs:
                raise ValueError(
                    "`create_env_fn` must make environments whose entries keep their shapes, got "
                    f"{type(inner.env).__name__} with shapes that change; use SyncCollector"
                )
            if self.rows % inner.n_env:
                raise ValueError(
                    "`frames_per_batch` must be a multiple of the number of environments in a "
                    f"worker ({inner.n_env}), got {self.rows}"
                )
            row = inner.fake_tensordict().reshape(-1)[0].to("cpu")
        finally:
            inner.shutdown()
        known = set(row.keys(True, True))
        missing = [key for key in keys or () if key not in known]
        if missing:
            raise KeyError(f"`keys` must be among {sorted(known, key=str)}, got {missing}")
        return row if keys is None else row.select(*keys)


def _factories(
    create_env_fn: Callable[[], EnvBase] | Sequence[Callable[[], EnvBase]],
    num_workers: int | None,
) -> list[Callable[[], EnvBase]]:
    if isinstance(create_env_fn, Sequence):
        factories = list(create_env_fn)
        if num_workers not in (None, len(factories)):
            raise ValueError(
                f"`num_workers` must be the number of factories ({len(factories)}) or left out, "
                f"got {num_workers}"
            )
    else:
        factories = [create_env_fn] * (num_workers or 0)
    if not factories:
        raise ValueError(f"`num_workers` must be at least 1, got {num_workers}")
    for factory in factories:
        if isinstance(factory, EnvBase) or not callable(factory):
            raise TypeError(
                "`create_env_fn` must be a factory or a sequence of factories, got "
                f"{type(factory).__name__}; every process makes its own environment"
            )
    return factories
