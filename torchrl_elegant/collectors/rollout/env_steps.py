"""One step of a batched TorchRL environment."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.base import NO_DEFAULT
from torchrl.data import NonTensor, TensorSpec
from torchrl.data.tensor_specs import Composite, Stacked, StackedComposite
from torchrl.envs import EnvBase, GymLikeEnv, TransformedEnv
from torchrl.envs.transforms import (
    ActionScaling,
    Compose,
    DoubleToFloat,
    InitTracker,
    RewardSum,
    StepCounter,
    Transform,
)

from torchrl_elegant.envs import GymnasiumEnv
from torchrl_elegant.envs.wrap import ActionClipping
from torchrl_elegant.functional import path_of

Key = str | tuple[str, ...]


class Leaves:
    """Reads and writes the entries under some keys, faster than `TensorDict.get` and `set`.

    Those take 1 us for a nested key, ten times as long as the lookup in the dictionary behind them,
    and a multi-agent step asks for some twenty keys.

    >>> from tensordict import TensorDict
    >>> leaves = Leaves(["done", ("agents", "reward")])
    >>> data = TensorDict({"done": torch.zeros(2, 1), "agents": {"info": torch.ones(2, 3)}}, [2])
    >>> leaves.read(data)
    [tensor([[0.],
            [0.]]), None]
    >>> leaves.write(data, [torch.ones(2, 1), torch.zeros(2, 3)])
    >>> data["agents", "reward"].shape
    torch.Size([2, 3])
    """

    def __init__(self, keys: Iterable[Key]) -> None:
        nodes: dict[tuple[str, ...], list[str]] = {}
        for key in keys:
            *node, name = path_of(key)
            nodes.setdefault(tuple(node), []).append(name)
        self._nodes = [*nodes.items()]
        self.keys: list[Key] = [
            (*node, name) if node else name for node, names in self._nodes for name in names
        ]

    def read(self, data: TensorDictBase) -> list[Any]:
        """Reads the entries in the order of `keys`; None for those that are missing."""
        values: list[Any] = []
        for path, names in self._nodes:
            node: Any = data
            for part in path:
                node = None if node is None else node._get_str(part, None)
            if node is None:
                values += [None] * len(names)
            else:
                values += [node._get_str(name, None) for name in names]
        return values

    def write(self, data: TensorDictBase, values: Sequence[torch.Tensor]) -> None:
        """Replaces the entries by `values`, in the order of `keys`."""
        at = 0
        for path, names in self._nodes:
            node = data
            for part in path:
                node = node._get_str(part, NO_DEFAULT)
            for name in names:
                node._set_str(name, values[at], validated=True, inplace=False)
                at += 1


# Methods that TorchRL's rollout calls around `_step` and `_reset`; this file replaces them.
_CONTRACT = (
    "any_done",
    "maybe_reset",
    "reset",
    "step",
    "step_and_maybe_reset",
    "step_mdp",
    "_reset_check_done",
    "_reset_proc_data",
    "_step_and_maybe_reset",
    "_step_mdp",
    "_step_proc_data",
    "_post_step_mdp_hooks",
)
# Transforms that reset rows under a mask without looking at it, or do nothing at a reset.
_MASKING = (
    ActionClipping,
    ActionScaling,
    Compose,
    DoubleToFloat,
    InitTracker,
    RewardSum,
    StepCounter,
)


def keeps_contract(env: EnvBase) -> bool:
    """Tells whether `env` is a batch of tensors and overrides only `_step` and `_reset`.

    Gymnasium's environments take another path: `gymnasium_rollout` steps their simulators.

    >>> from torchrl.envs import PendulumEnv, SerialEnv
    >>> keeps_contract(SerialEnv(2, PendulumEnv))
    False
    """
    return _is_plain(env) and has_plain_specs(env)


def has_plain_specs(env: EnvBase) -> bool:
    """Tells whether the entries of `env` fit into plain batches, with done flags of their own.

    >>> from torchrl.envs import GymEnv, PendulumEnv
    >>> has_plain_specs(GymEnv("Pendulum-v1")), has_plain_specs(PendulumEnv())
    (True, False)
    """
    return (
        env.batch_locked
        and env._simple_done
        and not env.run_type_checks
        and not set(env.reward_keys) & set(env.full_state_spec.keys(True, True))
        and env.full_done_spec["done"].shape == (*env.batch_size, 1)
        and not any(isinstance(spec, NonTensor) for spec in _all_specs(env.specs))
        and not is_ragged(env)
    )


def is_ragged(env: EnvBase) -> bool:
    """Tells whether entries of `env` change their shapes, or differ in shape within a batch.

    >>> from torchrl.envs import PendulumEnv
    >>> is_ragged(PendulumEnv())
    False
    """
    stacked = any(isinstance(spec, Stacked | StackedComposite) for spec in _all_specs(env.specs))
    return stacked or env._has_dynamic_specs


def _is_plain(env: EnvBase) -> bool:
    if type(env) is TransformedEnv:
        return not is_hooked(env) and _is_plain(env.base_env)
    if isinstance(env, (GymLikeEnv, GymnasiumEnv)):
        return False
    own = (name for name in _CONTRACT if not _is_inherited(type(env), name))
    # An environment that is compiled as a whole, or resets itself, takes another path.
    instance = ("_compiled_step_and_maybe_reset", "_torchrl_native_autoreset")
    return next(own, None) is None and not any(env.__dict__.get(name) for name in instance)


def is_hooked(env: TransformedEnv) -> bool:
    """Tells whether a transform changes entries between a step and the next."""
    return any(
        type(transform)._post_step_mdp_hooks is not Transform._post_step_mdp_hooks
        for transform in _transforms(env.transform)
    )


def _is_inherited(cls: type, name: str) -> bool:
    return inspect.getattr_static(cls, name) is inspect.getattr_static(EnvBase, name)


def _transforms(transform: Transform) -> Iterator[Transform]:
    if isinstance(transform, Compose):
        for child in transform.transforms:
            yield from _transforms(child)
    else:
        yield transform


def _all_specs(spec: TensorSpec) -> Iterator[TensorSpec]:
    yield spec
    if isinstance(spec, Composite) and not isinstance(spec, StackedComposite):
        for child in spec.values():
            if child is not None:
                yield from _all_specs(child)


class Steps(Protocol):
    """The two methods of an environment that a rollout calls."""

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase: ...

    def _reset(self, tensordict: TensorDictBase, **kwargs: Any) -> TensorDictBase: ...


class EnvStepper:
    """Steps and resets one batched environment, in lists of leaves.

    A class with `resets_by_mask = True` promises that its `_reset` resets exactly the rows of the
    `"_reset"` mask, none for an empty mask, and never looks at the mask on the host
    (`torch.where`). It is reset under its done flags after every step, so nothing waits for a GPU.
    The same holds with the transforms of `make_env` around it.

    Args:
        env: an environment for which `has_plain_specs` holds.
        steps: its `_step` and `_reset`; by default its own.

    >>> from torchrl.envs import PendulumEnv
    >>> env = PendulumEnv()
    >>> stepper = EnvStepper(env)
    >>> stepper.resets_by_mask, stepper.nexts.keys[:3]
    (False, ['th', 'thdot', 'done'])
    >>> values = stepper.step(env.rand_action(env.reset()))
    >>> dict(zip(stepper.nexts.keys, values))["reward"].shape
    torch.Size([1])
    """

    def __init__(self, env: EnvBase, steps: Steps | None = None) -> None:
        self._env, self._steps = env, steps or env
        #: Observations and done flags: entries that a step passes on and a reset renews.
        self.roots = Leaves([*env._observation_keys_step_mdp, *env._done_keys_step_mdp])
        self.nexts = Leaves([*self.roots.keys, *env.reward_keys])
        self.resets_by_mask = steps is None and _declares(env)
        self._flags = [self.roots.keys.index(key) for key in env.done_keys_groups[0]]
        # Rewards and done flags may come in another shape, which TorchRL corrects.
        specs = env.output_spec["full_reward_spec"], env.output_spec["full_done_spec"]
        shapes = {key: spec.shape for full in specs for key, spec in full.items(True, True)}
        self._shapes = [shapes.get(key) for key in self.nexts.keys]
        self._kwargs = {"set_state": False} if env._supports_set_state else {}

    def step(self, data: TensorDictBase) -> list[torch.Tensor]:
        """Steps with the actions in `data`; returns the outcome in the order of `nexts`."""
        after = self._steps._step(data)
        values = self.nexts.read(after)
        for value, shape in zip(values, self._shapes, strict=True):
            if value is None or (shape is not None and value.shape != shape):
                return self._mended(after)
        return values

    def _mended(self, after: TensorDictBase) -> list[torch.Tensor]:
        values = self.nexts.read(self._env._step_proc_data(after))
        for key, value in zip(self.nexts.keys, values, strict=True):
            if value is None:
                raise KeyError(
                    f"`_step` of {type(self._env).__name__} must return {key!r}, got "
                    f"{sorted(map(str, after.keys(True, True)))}; `check_env_specs` tells more"
                )
        return values

    def reset(self, data: TensorDictBase, done: torch.Tensor) -> None:
        """Resets the rows that are done, and writes their new roots into `data`."""
        env = self._env
        request = TensorDict({"_reset": done.clone()}, env.batch_size, device=env.device)
        after = self._steps._reset(request, **self._kwargs)
        old, new = self.roots.read(data), self.roots.read(after)
        if self._needs_torchrl(old, new):
            self._reset_as_torchrl(data, after, done)
            return
        dims = len(env.batch_size)
        rows = done.reshape(env.batch_size)
        merged = [
            torch.where(rows.view((*rows.shape, *[1] * (now.ndim - dims))), then, now)
            for then, now in zip(new, old, strict=True)
        ]
        self.roots.write(data, merged)

    def _needs_torchrl(self, old: list[Any], new: list[Any]) -> bool:
        """Tells whether a reset left out an entry, changed a shape or ended at once."""
        for then, now in zip(new, old, strict=True):
            if then is None or then.shape != now.shape:
                return True
        if self.resets_by_mask or self._env._allow_done_after_reset:
            return False
        return any(bool(new[flag].any()) for flag in self._flags)

    def _reset_as_torchrl(
        self, data: TensorDictBase, after: TensorDictBase, done: torch.Tensor
    ) -> None:
        whole = data.copy()
        whole.set("_reset", done.clone())
        whole = self._env._reset_proc_data(whole, after)
        self.roots.write(data, self.roots.read(whole))


@runtime_checkable
class _SaysHowItResets(Protocol):
    resets_by_mask: bool


def _declares(env: EnvBase) -> bool:
    if type(env) is TransformedEnv:
        masking = all(type(transform) in _MASKING for transform in _transforms(env.transform))
        return masking and _declares(env.base_env)
    kind = type(env)
    return isinstance(kind, _SaysHowItResets) and kind.resets_by_mask
