"""A rollout that steps a `GymnasiumEnv` in numpy, with one TensorDict per batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModuleBase
from torchrl.collectors import Collector
from torchrl.envs.utils import set_exploration_type

from torchrl_elegant.envs import GymnasiumEnv

Key = str | tuple[str, ...]

_FLAGS = frozenset({"done", "terminated", "truncated"})
_TRAJ_IDS = ("collector", "traj_ids")
_CPU = (None, torch.device("cpu"))


def can_be_lean(collector: Collector) -> bool:
    env = collector.env
    devices = (collector.storing_device, collector.policy_device, env.device)
    return (
        type(env) is GymnasiumEnv
        and all(device in _CPU for device in devices)
        and not (collector.compiled_policy or collector.cudagraphed_policy)
        and not collector.compact_obs
        and collector.interruptor is None
        and (collector.extend_buffer or not _extends_buffer(collector))
        # A nested output may be meant for the next step, which only TorchRL's rollout carries.
        and all(isinstance(key, str) for key in collector._policy_output_keys)
    )


class LeanRollout:
    """Steps a `GymnasiumEnv` for a collector, writing each value straight into its row."""

    def __init__(self, collector: Collector) -> None:
        self._env: GymnasiumEnv = collector.env
        self._action_spec = self._env.full_action_spec["action"]
        # A caller who asked for the same TensorDict gets TorchRL's buffer each time.
        self._reuse = collector.return_same_td and collector._use_buffers
        # The carrier then always holds the present observations, with nothing to copy.
        for key, array in self._env.root_arrays.items():
            collector._carrier.set(key, torch.from_numpy(array))
        self._policy_keys = [*collector._policy_output_keys]
        self._act = self._direct_act(collector)
        self._make_rows(collector)

    def _make_rows(self, collector: Collector) -> None:
        env, dims = self._env, self._env.batch_dims
        shape = (*env.batch_size, collector.frames_per_batch)
        names = None if _extends_buffer(collector) else [*[None] * dims, "time"]
        self._batch = TensorDict({}, shape, device=collector.storing_device, names=names)

        def row(key: Key, like: torch.Tensor) -> np.ndarray:
            rows = torch.zeros(*shape, *like.shape[dims:], dtype=like.dtype)
            self._batch.set(key, rows)
            return rows.numpy()

        # Root flags stay zero: every row starts at an observation from which an episode goes on.
        roots = {key: row(key, torch.from_numpy(a)) for key, a in env.root_arrays.items()}
        self._roots = [(roots[k], a) for k, a in env.root_arrays.items() if k not in _FLAGS]
        self._action_row = row("action", self._action_spec.zero())
        self._nexts = [
            (row(_next(key), torch.from_numpy(array)), array)
            for key, array in env.next_arrays.items()
        ]
        if collector.track_traj_ids:
            self._ids_row = row(_TRAJ_IDS, collector._carrier.get(_TRAJ_IDS))
        if collector._use_buffers:
            for key in set(collector._policy_output_keys) - {"action"}:
                self._batch.set(key, torch.zeros_like(collector._final_rollout.get(key)))

    def _direct_act(self, collector: Collector) -> Callable[[torch.Tensor], torch.Tensor] | None:
        policy, keys = collector.policy, self._env.simulator_keys
        if not isinstance(policy, TensorDictModuleBase) or not hasattr(policy, "act"):
            return None
        if [*policy.in_keys] != keys or [*policy.out_keys] != ["action"]:
            return None
        self._observation = collector._carrier.get(keys[0])
        return policy.act

    def key_names(self) -> set[str]:
        """Every name that occurs in a key of a batch."""
        keys = [*self._env.root_arrays, *self._policy_keys]
        return {name for key in keys for name in ((key,) if isinstance(key, str) else key)}

    def collect(self, collector: Collector) -> TensorDict:
        """`frames_per_batch` steps of every sub environment."""
        env, track = self._env, collector.track_traj_ids
        if track:
            ids = collector._carrier.get(_TRAJ_IDS).numpy()
        with set_exploration_type(collector.exploration_type):
            for t in range(collector.frames_per_batch):
                at = (slice(None), t) if env.batch_size else t
                for row, live in self._roots:
                    row[at] = live
                if track:
                    self._ids_row[at] = ids
                action = self._action_row[at] = self._next_action(collector, at)
                any_done = env.step_numpy(action)
                for row, live in self._nexts:
                    row[at] = live
                if any_done:
                    done = env.done_rows()
                    env.reset_numpy(done)
                    if track:
                        new = collector._traj_pool.get_traj_and_increment(len(done))
                        ids.reshape(-1)[done] = new.numpy()
        # Out of the hands of the caller, who may replace or change what it gets.
        return collector._final_rollout.update_(self._batch) if self._reuse else self._batch.clone()

    def _next_action(self, collector: Collector, at: int | tuple[slice, int]) -> np.ndarray:
        if collector._should_use_random_frames():
            return self._action_spec.rand().numpy()
        if self._act is not None:
            with torch.inference_mode():
                return self._act(self._observation).numpy()
        carrier = collector._carrier
        output = collector._wrapped_policy(carrier)
        if output is not carrier:
            carrier.update(output, keys_to_update=collector._policy_output_keys)
        for key in collector._policy_output_keys:
            if key != "action":
                self._keep(key, carrier.get(key), at)
        # As in TorchRL, the next call must not find the last action beside a new observation.
        return carrier.pop("action").numpy()

    def _keep(self, key: str, value: torch.Tensor, at: int | tuple[slice, int]) -> None:
        rows = self._batch.get(key, None)
        if rows is None:
            shape = (*self._batch.shape, *value.shape[self._env.batch_dims :])
            rows = torch.zeros(shape, dtype=value.dtype)
            self._batch.set(key, rows)
        rows[at] = value


def _next(key: Key) -> tuple[str, ...]:
    return ("next", key) if isinstance(key, str) else ("next", *key)


def _extends_buffer(collector: Collector) -> bool:
    return collector.replay_buffer is not None and not collector._ignore_rb
