"""Rollout that steps Gymnasium simulators in numpy, and makes one TensorDict per batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from torch import Tensor
from torchrl.collectors import Collector
from torchrl.envs.utils import set_exploration_type

from torchrl_elegant.collectors.rollout.episode_counts import TRAJ_IDS
from torchrl_elegant.collectors.rollout.layout import Layout
from torchrl_elegant.collectors.rollout.policy_calls import (
    PolicyOutputs,
    RolloutPlan,
    direct_call,
)
from torchrl_elegant.collectors.rollout.simulators import SimulatorAccess, simulators_of
from torchrl_elegant.collectors.rollout.step_memory import StepMemory
from torchrl_elegant.envs.spaces import BadActionError, random_allowed
from torchrl_elegant.functional import action_mask_of, path_of

_CPU = (None, torch.device("cpu"))


def gymnasium_rollout(collector: Collector) -> GymnasiumRollout | None:
    """Direct rollout for `collector`; None if its batches need another one."""
    env = collector.env
    devices = (collector.storing_device, collector.policy_device, env.device)
    if (
        not all(device in _CPU for device in devices)
        or collector.compiled_policy
        or collector.cudagraphed_policy
        or collector.compact_obs
        or collector.interruptor is not None
        or (extends_buffer(collector) and not collector.extend_buffer)
        # A nested output may be meant for the next step, which only TorchRL's rollout carries.
        or not all(isinstance(key, str) for key in collector._policy_output_keys)
    ):
        return None
    access = simulators_of(env)
    return None if access is None else GymnasiumRollout(collector, access)


def extends_buffer(collector: Collector) -> bool:
    """True if the collector hands its batches to a replay buffer."""
    return collector.replay_buffer is not None and not collector._ignore_rb


class GymnasiumRollout:
    """Steps the simulators of a collector, and writes each value straight into its row."""

    def __init__(self, collector: Collector, access: SimulatorAccess) -> None:
        env, self._frames = collector.env, collector.frames_per_batch
        self._layout = Layout(batch_dims=env.batch_dims)
        self._decode_rows = access.decode
        self._decode = access.decode if env.batch_dims else lambda a: access.decode(a[None])
        self._action_spec = env.full_action_spec["action"]
        self._held, self._present = _held_by(collector, access)
        self._memory = StepMemory(
            access, frames=self._frames, present=self._present, draw_ids=_draw(collector)
        )
        direct = direct_call(collector.policy, self._memory.observations)
        plain = direct is not None and all(isinstance(key, str) for key in direct.writes)
        self._direct = direct if plain else None
        self._outputs = self._make_outputs(collector)
        if self._direct is not None:
            self._act, self._inputs = self._direct.act, self._input_rows(self._direct.reads)
            self._planned_inputs = self._input_rows(self._direct.reads, each=True)
            # Around the policy alone: a simulator may change the tensors that it makes.
            self._inference = torch.inference_mode()
            alone = [*self._direct.writes] == ["action"]
            write = self._outputs.write_action if alone else self._outputs.write
            self._write: Callable[[int, Any], Tensor] = write
        self._choice = env.action_spec_unbatched
        mask = action_mask_of(env)
        self._masks = None if mask is None else self._input_rows([mask])
        shape = (*env.batch_size, self._frames)
        names = None if extends_buffer(collector) else [*[None] * env.batch_dims, "time"]
        self._frame = {"batch_size": torch.Size(shape), "names": names}
        self._frame["device"] = collector.storing_device
        # A caller who asked for the same TensorDict gets TorchRL's buffer each time.
        self._reuse = collector.return_same_td and collector._use_buffers

    def _make_outputs(self, collector: Collector) -> PolicyOutputs:
        keys = {*collector._policy_output_keys, "action"}
        known = {}
        if collector._use_buffers:
            time = self._layout.batch_dims
            others = keys - {"action"}
            known = {key: collector._final_rollout.get(key).select(time, 0) for key in others}
        return PolicyOutputs(
            frames=self._frames,
            keys=sorted(keys) if self._direct is None else self._direct.writes,
            action=self._action_spec.zero(),
            known=known,
        )

    def _input_rows(
        self, keys: Sequence[NestedKey], each: bool = False
    ) -> list[tuple[Tensor, ...]]:
        arrays = [self._memory.observations[key] for key in keys]
        if not self._layout.batch_dims and not each:
            arrays = [array[:, 0] for array in arrays]
        tensors = [torch.from_numpy(array) for array in arrays]
        return [tuple(tensor[t] for tensor in tensors) for t in range(self._frames)]

    def key_names(self) -> set[str]:
        """Every name that occurs in a key of a batch."""
        keys = [*self._present, *self._outputs.keys]
        return {name for key in keys for name in path_of(key)}

    def collect(self, collector: Collector) -> TensorDictBase:
        """`frames_per_batch` steps of every sub environment."""
        memory, decode, steps = self._memory, self._decode, 0
        self._take_up(collector)
        choose = self._chooser(collector)
        restart = None if self._direct is None else self._direct.restart
        memory.begin()
        self._outputs.begin()
        try:
            with set_exploration_type(collector.exploration_type):
                plan = self._plan(collector)
                if plan is not None:
                    choose, decode = partial(self._call_plan, plan), self._decode_rows
                while steps < self._frames:
                    ended = memory.step(steps, decode(choose(steps).numpy()))
                    if ended and restart is not None:
                        restart(_mask(ended, collector.env.batch_size))
                    steps += 1
        except BadActionError as error:
            # A policy answers NaN with NaN: name the observation if it was the first.
            memory.require_finite(steps, frames=collector._frames)
            frame = collector._frames + steps * len(memory) + error.row + 1
            raise error.at_frame(frame) from None
        finally:
            # Also if a step failed: the next rollout then starts after the last that did not.
            memory.finish(steps)
        written = self._outputs.entries(self._layout) if plan is None else self._planned(plan)
        entries = {**memory.entries(self._layout), **written}
        batch = _nested(entries, self._frame)
        return collector._final_rollout.update_(batch) if self._reuse else batch

    def _take_up(self, collector: Collector) -> None:
        carrier = collector._carrier
        # A partial reset puts other tensors into the carrier, all at once.
        if carrier.get("done") is not self._held["done"]:
            for key, tensor in self._held.items():
                tensor.copy_(carrier.get(key))
                carrier.set(key, tensor)
        if collector.track_traj_ids:
            self._present[TRAJ_IDS] = carrier.get(TRAJ_IDS).numpy().reshape(-1)

    def _plan(self, collector: Collector) -> RolloutPlan | None:
        # During random frames each step asks whether they are over.
        make = None if self._direct is None else self._direct.plan
        if make is None or collector._should_use_random_frames():
            return None
        return make(frames=self._frames, count=len(self._memory))

    def _planned(self, plan: RolloutPlan) -> dict[tuple[str, ...], Tensor]:
        assert self._direct is not None
        values = zip(self._direct.writes, plan.outputs(), strict=True)
        batched = bool(self._layout.batch_dims)
        return {
            (key,): self._layout.turned(value if batched else value[:, 0]) for key, value in values
        }

    def _chooser(self, collector: Collector) -> Callable[[int], Tensor]:
        policy = self._call if self._direct else partial(self._call_on_carrier, collector)
        if collector._should_use_random_frames():
            return partial(self._at_random, collector, policy)
        return policy

    def _call(self, t: int) -> Tensor:
        with self._inference:
            return self._write(t, self._act(*self._inputs[t]))

    def _call_plan(self, plan: RolloutPlan, t: int) -> Tensor:
        with self._inference:
            return plan.act(t, *self._planned_inputs[t])

    def _call_on_carrier(self, collector: Collector, t: int) -> Tensor:
        if t:
            self._memory.show(t)
        carrier = collector._carrier
        output = collector._wrapped_policy(carrier)
        if output is not carrier:
            carrier.update(output, keys_to_update=collector._policy_output_keys)
        # As in TorchRL, the next call finds the outputs of this one, the action included.
        return self._outputs.write(t, [carrier.get(key) for key in self._outputs.keys])

    def _at_random(self, collector: Collector, policy: Callable[[int], Tensor], t: int) -> Tensor:
        # Asked at every step: other processes may write to the same buffer.
        if not collector._should_use_random_frames():
            return policy(t)
        action = self._random_action(t)
        if self._direct is not None and self._direct.carries:
            # Its states must be those of the steps that are made.
            self._call(t)
        action = self._outputs.write_action(t, action)
        if self._direct is None:
            if t:
                self._memory.show(t)
            collector._carrier.set("action", action)
        return action

    def _random_action(self, t: int) -> Tensor:
        if self._masks is None:
            return self._action_spec.rand()
        return random_allowed(self._choice, *self._masks[t])


def _mask(rows: Sequence[int], batch_size: torch.Size) -> Tensor:
    mask = torch.zeros(batch_size.numel(), dtype=torch.bool)
    mask[list(rows)] = True
    return mask.view(batch_size)


def _held_by(
    collector: Collector, access: SimulatorAccess
) -> tuple[dict[NestedKey, Tensor], dict[NestedKey, np.ndarray]]:
    """The present state, as tensors in the carrier of `collector` and as arrays `[n, ...]`."""
    carrier, batched = collector._carrier, bool(collector.env.batch_size)
    present = {} if access.live is None else {**access.live}
    held = {}
    for key in [key for key in carrier.keys(True, True) if key != TRAJ_IDS]:
        if access.live is None:
            # Simulators may write again into the arrays that they return.
            held[key] = carrier.get(key).clone()
            array = held[key].numpy()
            present[key] = array if batched else array[None]
        else:
            held[key] = torch.from_numpy(present[key] if batched else present[key][0])
        carrier.set(key, held[key])
    return held, present


def _draw(collector: Collector) -> Callable[[int], list[int]] | None:
    if not collector.track_traj_ids:
        return None
    pool = collector._traj_pool
    return lambda count: pool.get_traj_and_increment(count).tolist()


def _nested(entries: dict[tuple[str, ...], Tensor], frame: dict[str, Any]) -> TensorDict:
    tree: dict[str, Any] = {}
    for path, value in entries.items():
        node = tree
        for name in path[:-1]:
            node = node.setdefault(name, {})
        node[path[-1]] = value
    return _tensordict(tree, frame)


def _tensordict(tree: dict[str, Any], frame: dict[str, Any]) -> TensorDict:
    source = {k: _tensordict(v, frame) if isinstance(v, dict) else v for k, v in tree.items()}
    return TensorDict._new_unsafe(source, **frame)
