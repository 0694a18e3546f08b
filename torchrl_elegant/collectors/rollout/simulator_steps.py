"""Gymnasium simulators under any transforms: the simulators are stepped directly.

This file is part of the border to the objects of TorchRL, like `simulators.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.envs import EnvBase, TransformedEnv

from torchrl_elegant.collectors.rollout.env_steps import Steps, is_hooked
from torchrl_elegant.collectors.rollout.simulators import SimulatorAccess, simulators_of
from torchrl_elegant.envs import GymnasiumEnv


def simulator_steps(env: EnvBase) -> Steps | None:
    """Steps of known Gymnasium simulators under any transforms; None for other environments.

    Each transform is called as TorchRL calls it, once a step, on the rows of all simulators: its
    statistics and its memory are afterwards what TorchRL's rollout would leave.

    >>> from torchrl.envs import GymEnv, RewardScaling
    >>> env = TransformedEnv(GymEnv("CartPole-v1"), RewardScaling(loc=0.5, scale=2.0))
    >>> steps = simulator_steps(env)
    >>> steps._step(env.rand_action(env.reset()))["reward"]
    tensor([2.5000])
    """
    if type(env) is GymnasiumEnv:
        return env
    if type(env) is TransformedEnv:
        inner = None if is_hooked(env) else simulator_steps(env.base_env)
        return None if inner is None else _Transformed(env, inner)
    access = simulators_of(env)
    # Counters inside of a `SerialEnv` are made for whole batches, not step by step.
    return None if access is None or access.counters else _Simulators(env, access)


class _Transformed:
    """Steps of `env`, around the steps of its base."""

    def __init__(self, env: TransformedEnv, inner: Steps) -> None:
        self._transform, self._inner = env.transform, inner
        self._complete, self._done_spec = env.base_env._complete_done, env.base_env.full_done_spec

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        data = self._transform.inv(tensordict)
        after = self._complete(self._done_spec, self._inner._step(data))
        return self._transform._step(data, after)

    def _reset(self, tensordict: TensorDictBase, **kwargs: Any) -> TensorDictBase:
        data = self._transform._reset_env_preprocess(tensordict)
        after = self._complete(self._done_spec, self._inner._reset(data, **kwargs))
        return self._transform._reset(data, after)


class _Simulators:
    """Simulators of `env`, with the rows that its own `_step` and `_reset` would return."""

    def __init__(self, env: EnvBase, access: SimulatorAccess) -> None:
        self._access, self._count = access, len(access.envs)
        self._batch_size, self._device = env.batch_size, env.device
        # The first observations of the present episodes. A `SerialEnv` returns them for the rows
        # that it does not reset, and transforms that keep statistics count them.
        self._firsts = [
            env.shared_tensordict_parent.get(leaf.key).numpy()
            if self._batch_size
            else np.zeros((1, *leaf.spec.shape), leaf.dtype)
            for leaf in access.leaves
        ]

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        action = tensordict.get("action").numpy()
        actions = self._access.decode(action if self._batch_size else action[None])
        arrays = [np.empty_like(first) for first in self._firsts]
        writes = [
            (leaf.write, array) for leaf, array in zip(self._access.leaves, arrays, strict=True)
        ]
        rewards = np.empty((self._count, 1), np.float32)
        terminated, truncated = np.zeros((2, self._count, 1), np.bool_)
        for row, (env, one) in enumerate(zip(self._access.envs, actions, strict=True)):
            seen, rewards[row, 0], terminated[row, 0], truncated[row, 0], _ = env.step(one)
            for write, array in writes:
                write(array, row, seen)
        rewards += 0.0  # a zero has no sign, as in TorchRL's own environments
        flags = {"done": terminated | truncated, "terminated": terminated, "truncated": truncated}
        return self._made(arrays, {"reward": rewards, **flags})

    def _reset(self, tensordict: TensorDictBase, **kwargs: Any) -> TensorDictBase:
        mask = tensordict.get("_reset").reshape(self._count, -1).any(-1)
        for row in mask.nonzero()[:, 0].tolist():
            seen = self._access.reset(row)
            for leaf, first in zip(self._access.leaves, self._firsts, strict=True):
                leaf.write(first, row, seen)
        return self._made([first.copy() for first in self._firsts], {})

    def _made(
        self, observations: Sequence[np.ndarray], others: Mapping[str, np.ndarray]
    ) -> TensorDict:
        batched = bool(self._batch_size)
        made = TensorDict._new_unsafe(
            {key: torch.from_numpy(rows if batched else rows[0]) for key, rows in others.items()},
            batch_size=self._batch_size,
            device=self._device,
        )
        for leaf, rows in zip(self._access.leaves, observations, strict=True):
            made.set(leaf.key, torch.from_numpy(rows if batched else rows[0]))
        return made
