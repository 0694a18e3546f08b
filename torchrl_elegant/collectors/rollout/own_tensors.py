"""Environments that write again into tensors they have returned: their outputs are copied."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from tensordict import NestedKey, TensorDictBase
from torch import Tensor
from torchrl.envs import EnvBase, ParallelEnv, SerialEnv

from torchrl_elegant.envs import GymnasiumEnv

#: Steps for which an environment is watched; buffers that take turns are few.
WATCHED_STEPS = 8


class OwnTensors:
    """Watch over the first steps of an environment, for outputs that lie where earlier ones lay.

    A simulator may return its live buffers. A collector that keeps the tensors of all steps until
    the batch is full would find the last reward in every step. So the first `WATCHED_STEPS` steps
    are copied, and the addresses of their entries compared, while all of them are held. Entries
    that share memory from step to step are copied from then on, and a warning says which. If there
    is none the watch leaves, and costs nothing.

    Args:
        env: is stepped by its `_step` and `_reset`, which this object stands before.

    >>> import torch
    >>> from torchrl.envs import PendulumEnv
    >>> class Careless(PendulumEnv):
    ...     paid = torch.zeros(1)
    ...
    ...     def _step(self, tensordict):
    ...         after = super()._step(tensordict)
    ...         return after.set("reward", self.paid.copy_(after["reward"]))
    >>> env = Careless()
    >>> watch = OwnTensors(env)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     rewards = env.rollout(20)["next", "reward"]
    >>> watch.shared, len(rewards.unique()) > 15
    (['reward'], True)
    """

    def __init__(self, env: EnvBase) -> None:
        self._env, self._name = vars(env), type(env).__name__
        self._step: Callable[[TensorDictBase], TensorDictBase] = env._step
        self._reset: Callable[..., TensorDictBase] = env._reset
        self._held: list[TensorDictBase] = []
        self._left = WATCHED_STEPS
        self._places: dict[NestedKey, set[int]] = {}
        #: Entries that share memory from step to step.
        self.shared: list[NestedKey] = []
        self._env |= {"_step": self._owned_step, "_reset": self._owned_reset}

    def _owned_step(self, tensordict: TensorDictBase) -> TensorDictBase:
        after = self._step(tensordict)
        if self._left:
            self._look(after)
            return after.clone()
        owned = after.copy()
        for key in self.shared:
            owned.set(key, owned.get(key).clone())
        return owned

    def _owned_reset(self, *args: Any, **kwargs: Any) -> TensorDictBase:
        return self._reset(*args, **kwargs).clone()

    def _look(self, after: TensorDictBase) -> None:
        # While a tensor is held nobody else is given its memory.
        self._held.append(after.copy())
        for key, value in after.items(True, True):
            if isinstance(value, Tensor) and value.numel():
                places = self._places.setdefault(key, set())
                if value.data_ptr() in places and key not in self.shared:
                    self.shared.append(key)
                places.add(value.data_ptr())
        self._left -= 1
        if not self._left:
            self._conclude()

    def _conclude(self) -> None:
        self._held.clear()
        if self.shared:
            warnings.warn(
                f"`{self._name}` writes again into {self.shared}, which are copied at each step; "
                "return tensors of their own",
                stacklevel=2,
            )
        else:
            del self._env["_step"], self._env["_reset"]


def watch_outputs(env: EnvBase) -> None:
    """Watches the outputs of `env`, unless they are known to be new at each step."""
    if not isinstance(env, (GymnasiumEnv, SerialEnv, ParallelEnv)) and "_step" not in vars(env):
        OwnTensors(env)
