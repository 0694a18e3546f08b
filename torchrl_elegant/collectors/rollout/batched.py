"""Rollouts of batched TorchRL environments."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Protocol

import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.collectors import Collector
from torchrl.envs import EnvBase
from torchrl.envs.utils import set_exploration_type
from torchrl.modules import RandomPolicy

from torchrl_elegant.collectors.rollout.env_steps import (
    EnvStepper,
    Key,
    Leaves,
    has_plain_specs,
    keeps_contract,
)
from torchrl_elegant.collectors.rollout.policy_calls import (
    DirectCall,
    declared_keys,
    direct_call,
)
from torchrl_elegant.collectors.rollout.simulator_steps import simulator_steps
from torchrl_elegant.collectors.rollout.trajectory_ids import DeferredPool, trajectory_ids
from torchrl_elegant.collectors.rollout.vmas import VmasStepper, is_plain_vmas
from torchrl_elegant.functional import path_of


class BatchFrame:
    """Builds batches with the keys, nested batch sizes, names and device of one of TorchRL's.

    Args:
        template: a batch of TorchRL.
        nexts: keys of a step's outcome, in the order of its values.
        dims: batch dimensions of the environment; time comes after them.

    >>> from tensordict import TensorDict
    >>> data = {"action": torch.zeros(2, 3), "next": {"reward": torch.zeros(2, 3)}}
    >>> frame = BatchFrame(TensorDict(data, [2, 3], names=[None, "time"]), nexts=["reward"], dims=1)
    >>> steps = [[torch.full((2,), float(t)), torch.ones(2)] for t in range(3)]
    >>> frame.filled(steps, into_template=False)["action"].tolist()
    [[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]
    """

    def __init__(self, template: TensorDictBase, *, nexts: Sequence[Key], dims: int) -> None:
        keys = template.keys(True, True)
        #: Entries of the carrier that are kept at each step.
        self.roots = Leaves(key for key in keys if head(key) not in ("next", "collector"))
        self._slots = Leaves([*self.roots.keys, *map(_next, nexts)])
        self._template, self._dims = template, dims

    def filled(
        self, steps: list[list[torch.Tensor | None]], *, into_template: bool
    ) -> TensorDictBase:
        """Fills a batch with `steps`: each holds the values of `roots`, then those of `nexts`."""
        batch = self._template if into_template else self._template.copy()
        values = []
        likes = self._slots.read(self._template)
        for like, column in zip(likes, zip(*steps, strict=True), strict=True):
            out = like if into_template else like.new_empty(like.shape)
            # A random step lacks the entries that only the policy writes.
            if any(value is None for value in column):
                values.append(out.zero_())
            else:
                values.append(torch.stack(column, self._dims, out=out))
        self._slots.write(batch, values)
        return batch


def example_batch(
    collector: Collector, carrier: TensorDictBase, after: TensorDictBase
) -> TensorDictBase:
    """Makes a batch as TorchRL does for frames like this one when it has no buffers."""
    frame = carrier.copy().set("next", after)
    if collector.storing_device is not None:
        frame = frame.to(collector.storing_device)
    elif collector._carrier_has_no_device:
        frame.clear_device_()
    batch = frame.unsqueeze(-1).expand(*collector.env.batch_size, collector.frames_per_batch)
    extends = collector.replay_buffer is not None and not collector._ignore_rb
    return batch if extends else batch.refine_names(..., "time")


def head(key: Key) -> str:
    """Gives the first name of a key.

    >>> head("reward"), head(("next", "reward"))
    ('reward', 'next')
    """
    return key if isinstance(key, str) else key[0]


def _next(key: Key) -> tuple[str, ...]:
    return ("next", key) if isinstance(key, str) else ("next", *key)


_TRAJ_IDS = ("collector", "traj_ids")


class BatchStepper(Protocol):
    """Protocol of an environment as a rollout sees it: keys, a step and a reset."""

    roots: Leaves
    nexts: Leaves
    resets_by_mask: bool

    def step(self, data: TensorDictBase) -> list[torch.Tensor]:
        """Steps with the actions in `data`; returns the outcome in the order of `nexts`."""

    def reset(self, data: TensorDictBase, done: torch.Tensor) -> None:
        """Resets the rows that are done, and writes their new roots into `data`."""


def batched_rollout(collector: Collector) -> BatchedRollout | None:
    """Makes the rollout for a batched environment; None if TorchRL's own is needed."""
    env = collector.env
    devices = {collector.storing_device, collector.policy_device} - {None, env.device}
    lean = (
        not devices
        and not (collector.compiled_policy or collector.cudagraphed_policy)
        and not collector.compact_obs
        and collector.interruptor is None
        and (collector.extend_buffer or not _extends_buffer(collector))
        and type(collector._carrier) is TensorDict
        and not any(head(key) in ("next", "collector") for key in _policy_keys(collector))
    )
    stepper = _stepper(env) if lean else None
    return None if stepper is None else BatchedRollout(collector, stepper)


def _stepper(env: EnvBase) -> BatchStepper | None:
    if keeps_contract(env):
        return VmasStepper(env) if is_plain_vmas(env) else EnvStepper(env)
    steps = simulator_steps(env) if has_plain_specs(env) else None
    return None if steps is None else EnvStepper(env, steps)


def _policy_keys(collector: Collector) -> list[Key]:
    declared = declared_keys(collector._wrapped_policy) or ([], [])
    return [*declared[0], *declared[1], *collector._policy_output_keys]


def _extends_buffer(collector: Collector) -> bool:
    return collector.replay_buffer is not None and not collector._ignore_rb


class BatchedRollout:
    """Steps a batched environment for a collector, and keeps references to each step's tensors.

    One TensorDict is carried through the steps. Its leaves are kept in lists, and one `torch.stack`
    per key writes them into the batch at the end. For small rows that takes a fifth to a tenth of
    the time of copying each step. Every batch is new memory, so it is not cloned. As in TorchRL, an
    environment must not write again into tensors that it has returned.

    Trajectory ids are computed for the whole batch. With an environment that has `resets_by_mask`
    nothing in a rollout waits for the device. Not yet run on a GPU.

    Args:
        collector: gives environment, policy and options.
        stepper: steps the environment.
    """

    def __init__(self, collector: Collector, stepper: BatchStepper) -> None:
        self._env, self._stepper = collector.env, stepper
        self._dims = len(self._env.batch_size)
        # With `return_same_td` the caller gets TorchRL's buffer each time.
        self._reuse = collector.return_same_td and collector._use_buffers
        self._carried = [stepper.nexts.keys.index(key) for key in stepper.roots.keys]
        self._done = stepper.nexts.keys.index("done")
        self._frame: BatchFrame | None = None
        if collector._use_buffers:
            self._frame = self._framed(collector._final_rollout)
        policy = collector._wrapped_policy
        self._draws = isinstance(policy, RandomPolicy)
        self._outputs = Leaves(collector._policy_output_keys)
        self._direct: DirectCall | None = None
        if not self._draws:
            self._direct = direct_call(policy, stepper.roots.keys, self._env.action_keys)
        if stepper.resets_by_mask and collector._traj_pool_val is not None:
            self._defer_ids(collector)

    def _framed(self, template: TensorDictBase) -> BatchFrame:
        return BatchFrame(template, nexts=self._stepper.nexts.keys, dims=self._dims)

    def _defer_ids(self, collector: Collector) -> None:
        pool = collector._traj_pool
        # A pool that processes share counts on the host, under its lock.
        if collector.track_traj_ids and pool.ctx is None:
            collector._traj_pool_val = DeferredPool(pool)

    def key_names(self) -> set[str]:
        """Collects every name that occurs in a key of a batch."""
        keys = [*self._stepper.nexts.keys, *self._outputs.keys, *self._env.action_keys]
        return {name for key in keys for name in path_of(key)}

    @torch.no_grad()
    def collect(self, collector: Collector) -> TensorDictBase:
        """Collects `frames_per_batch` steps of every sub environment."""
        stepper, done_at = self._stepper, self._done
        carrier = collector._carrier = self._take_up(collector)
        # Without TorchRL's buffers, random frames have other keys than those of the policy.
        frame = self._frame
        # Where an environment may write into its input, TorchRL gives it a copy.
        steps, copies = [], collector._cast_to_env_device
        with set_exploration_type(collector.exploration_type):
            for _ in range(collector.frames_per_batch):
                self._decide(collector, carrier)
                chosen = frame.roots.read(carrier) if copies and frame is not None else None
                nexts = stepper.step(carrier)
                if frame is None:
                    frame = self._framed(self._example(collector, carrier, nexts))
                steps.append((chosen or frame.roots.read(carrier)) + nexts)
                stepper.roots.write(carrier, [nexts[index] for index in self._carried])
                done = nexts[done_at]
                if stepper.resets_by_mask or done.any():
                    stepper.reset(carrier, done)
                    self._forget_outputs(carrier, done)
                    if self._direct is not None and self._direct.restart is not None:
                        self._direct.restart(done.reshape(self._env.batch_size))
        assert frame is not None, "`frames_per_batch` is at least 1"
        batch = frame.filled(steps, into_template=self._reuse)
        if collector.track_traj_ids:
            self._number(collector, batch)
        if collector._carrier_has_no_device:
            carrier.clear_device_()
        return batch

    def _take_up(self, collector: Collector) -> TensorDictBase:
        # A shallow copy: an environment may keep the TensorDict that it returned.
        carrier = collector._carrier.copy()
        if carrier.device != self._env.device:
            carrier = carrier.to(self._env.device)
        return carrier

    def _decide(self, collector: Collector, carrier: TensorDictBase) -> None:
        draws = collector._should_use_random_frames()
        if draws and not (self._direct is not None and self._direct.carries):
            self._env.rand_action(carrier)
        elif self._direct is not None:
            values = self._direct.act(*(carrier.get(key) for key in self._direct.reads))
            several = values if isinstance(values, tuple) else (values,)
            for key, value in zip(self._direct.writes, several, strict=True):
                carrier.set(key, value)
            if draws:
                # What it carries is that of the steps that are made.
                self._env.rand_action(carrier)
        else:
            # As TorchRL, which leaves the device open for a policy that none was given for.
            is_open = collector._carrier_has_no_device and collector.policy_device is None
            seen = carrier.copy().clear_device_() if is_open else carrier
            output = collector._wrapped_policy(seen)
            if output is not carrier:
                carrier.update(output, keys_to_update=collector._policy_output_keys)

    def _forget_outputs(self, carrier: TensorDictBase, done: torch.Tensor) -> None:
        """Zeroes the policy's outputs in rows that start anew, as TorchRL does.

        A policy may read an output at the next step, carried noise for example. If all rows start
        anew, TorchRL keeps the outputs.
        """
        if self._direct is not None or self._draws or not self._dims:
            return
        rows = done.reshape(self._env.batch_size)
        rows = rows & ~rows.all()
        values = self._outputs.read(carrier)
        if any(value is None for value in values):
            return
        dims = self._dims
        self._outputs.write(
            carrier,
            [v.masked_fill(rows.view(*rows.shape, *[1] * (v.ndim - dims)), 0) for v in values],
        )

    def _example(
        self, collector: Collector, carrier: TensorDictBase, nexts: Sequence[torch.Tensor]
    ) -> TensorDictBase:
        after = self._env.fake_tensordict().get("next")
        self._stepper.nexts.write(after, nexts)
        return example_batch(collector, carrier, after)

    def _number(self, collector: Collector, batch: TensorDictBase) -> None:
        """Writes the trajectory ids of all frames, and keeps the running ones."""
        dims, after = self._dims, batch.get("next")
        flags = [after.get(key).flatten(dims + 1).any(-1) for key in self._env.done_keys]
        ends = reduce(torch.logical_or, flags).movedim(-1, 0).reshape(batch.shape[-1], -1)
        running = collector._carrier.get(_TRAJ_IDS).reshape(-1)
        pool = collector._traj_pool
        if isinstance(pool, DeferredPool):
            first: int | torch.Tensor = pool.take(ends.sum())
        else:
            count = int(ends.sum())
            first = int(pool.get_traj_and_increment(count)[0]) if count else 0
        ids, running = trajectory_ids(ends, running=running, first=first)
        ids = ids.T.reshape(batch.shape)
        if self._reuse:
            batch.get(_TRAJ_IDS).copy_(ids)
        else:
            batch.set(_TRAJ_IDS, ids.contiguous())
        collector._carrier.set(_TRAJ_IDS, running.view(self._env.batch_size))
