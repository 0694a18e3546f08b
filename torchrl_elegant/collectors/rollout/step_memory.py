"""Memory with time first, into which simulators are stepped and from which a batch is made.

Row `t` holds the observation before step `t`, and row `t + 1` the one after it: present and next
observations of a batch are the same rows, one apart. After the end of an episode the next row
holds the first observation of the following one, and the true final one is kept aside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from torchrl_elegant.collectors.rollout.episode_counts import EpisodeCounts, Present
from torchrl_elegant.collectors.rollout.finite_check import CheckNow
from torchrl_elegant.collectors.rollout.layout import Layout
from torchrl_elegant.collectors.rollout.simulators import SimulatorAccess
from torchrl_elegant.envs.older_gym import refuse_short_step
from torchrl_elegant.functional import path_of


class StepMemory:
    """Steps of one rollout of all simulators.

    Args:
        access: the simulators.
        frames: steps of a rollout.
        present: the state between rollouts, arrays `[n, ...]` under the keys of the root; read
            when a rollout begins, written when it ends.
        draw_ids: draws so many new trajectory ids; None if they are not tracked.

    >>> import gymnasium
    >>> from functools import partial
    >>> from torchrl_elegant.collectors.rollout.simulators import simulators_of
    >>> from torchrl_elegant.envs import GymnasiumEnv
    >>> env = GymnasiumEnv(factories=[partial(gymnasium.make, "CartPole-v1")], seeds=[0])
    >>> _ = env.reset()
    >>> memory = StepMemory(
    ...     simulators_of(env), frames=2, present=env.simulators.next, draw_ids=None
    ... )
    >>> memory.begin()
    >>> for t in range(2):
    ...     _ = memory.step(t, [0])
    >>> memory.finish(2)
    >>> memory.entries(Layout(batch_dims=1))["next", "step_count"].tolist()
    [[[1], [2]]]
    """

    def __init__(
        self,
        access: SimulatorAccess,
        *,
        frames: int,
        present: Present,
        draw_ids: Callable[[int], list[int]] | None,
    ) -> None:
        self._access, self._present = access, present
        count = len(access.envs)
        self.observations = {
            leaf.key: np.zeros((frames + 1, count, *leaf.spec.shape), leaf.dtype)
            for leaf in access.leaves
        }
        self._rewards = np.zeros((frames, count), np.float32)
        self._terminated, self._truncated = np.zeros((2, frames, count), np.bool_)
        self._finals: list[list[np.ndarray]] = []
        self._episodes = EpisodeCounts(
            rewards=self._rewards,
            present=present,
            counters=access.counters,
            max_steps=access.max_steps,
            draw_ids=draw_ids,
        )
        self._cache_views()

    def _cache_views(self) -> None:
        leaves = self._access.leaves
        arrays = [self.observations[leaf.key] for leaf in leaves]
        self._steps = [env.step for env in self._access.envs]
        self._reward_rows = list(self._rewards)
        self._writes = [
            (leaf.write, list(array)) for leaf, array in zip(leaves, arrays, strict=True)
        ]
        # In the common case, one array, no call per simulator is needed to write.
        only = leaves[0]
        plain = len(leaves) == 1 and not only.source and only.offsets is None
        self._plain_rows = list(arrays[0]) if plain else None
        self._arrays = arrays

    def __len__(self) -> int:
        return len(self._steps)

    def begin(self) -> None:
        """Starts a rollout at the present state, whoever has made the last step."""
        for key, rows in self.observations.items():
            rows[0] = self._present[key]
        self._terminated[:] = self._truncated[:] = False
        self._finals = []
        self._episodes.begin()

    def step(self, t: int, actions: Iterable[Any]) -> list[int]:
        """Steps all simulators and resets those that ended; returns their rows."""
        try:
            ended = self._step(t, actions)
        except (ValueError, TypeError) as error:
            refuse_short_step(error, self._access.envs[0])
            raise
        if t >= self._episodes.next_cut:
            ended = self._cut(t, ended)
        # After all steps: simulators that share a random generator then draw in TorchRL's order.
        for i in ended:
            self._finals.append([array[t + 1, i].copy() for array in self._arrays])
            self._episodes.end(t, i)
            self._write(t + 1, i, self._access.reset(i))
        return ended

    def _step(self, t: int, actions: Iterable[Any]) -> list[int]:
        ended: list[int] = []
        rewards, i = self._reward_rows[t], 0
        if self._plain_rows is not None:
            row = self._plain_rows[t + 1]
            for step, action in zip(self._steps, actions, strict=True):
                row[i], rewards[i], terminated, truncated, _ = step(action)
                if terminated or truncated:
                    self._terminated[t, i], self._truncated[t, i] = terminated, truncated
                    ended.append(i)
                i += 1
        else:
            for step, action in zip(self._steps, actions, strict=True):
                observation, rewards[i], terminated, truncated, _ = step(action)
                self._write(t + 1, i, observation)
                if terminated or truncated:
                    self._terminated[t, i], self._truncated[t, i] = terminated, truncated
                    ended.append(i)
                i += 1
        return ended

    def require_finite(self, steps: int, *, frames: int) -> None:
        """Names the first observation of so many steps that is not finite; before them `frames`."""
        keys = [key for key, rows in self.observations.items() if rows.dtype.kind == "f"]
        paths: list[tuple[str, ...]] = [path_of(key) for key in keys]
        seen = [torch.from_numpy(self.observations[key]).transpose(0, 1) for key in keys]
        for parts, prefix in ((slice(1, steps + 1), ("next",)), (slice(0, 1), ())):
            batch = TensorDict({}, [len(self), seen[0][:, parts].shape[1]] if seen else [0])
            for path, values in zip(paths, seen, strict=True):
                batch.set((*prefix, *path), values[:, parts])
            CheckNow([(*prefix, *path) for path in paths])(batch, frames=frames)

    def _cut(self, t: int, ended: list[int]) -> list[int]:
        cut = self._episodes.cuts(t)
        self._truncated[t, cut] = True
        return sorted({*ended, *cut})

    def _write(self, t: int, row: int, observation: Any) -> None:
        for write, arrays in self._writes:
            write(arrays[t], row, observation)

    def show(self, t: int) -> None:
        """Moves the present state to before step `t`; call this for each step in turn."""
        for key, rows in self.observations.items():
            self._present[key][:] = rows[t]
        self._episodes.show(t)

    def finish(self, steps: int) -> None:
        """Moves the present state to after `steps` steps."""
        for key, rows in self.observations.items():
            self._present[key][:] = rows[steps]
        # TorchRL adds rewards to zero, so that none of its rewards is minus zero.
        self._rewards += 0.0
        self._episodes.finish(steps)
        for name in ("done", "terminated", "truncated"):
            self._present[name][:] = False
        if "reward" in self._present and steps:
            self._present["reward"][:, 0] = self._rewards[steps - 1]

    def entries(self, layout: Layout) -> dict[tuple[str, ...], Tensor]:
        """Entries of the batch, except the policy's; call this once a rollout."""
        out: dict[tuple[str, ...], Tensor] = {}
        for index, (key, rows) in enumerate(self.observations.items()):
            path = path_of(key)
            out[path], after = layout.tensor(rows[:-1]), layout.tensor(rows[1:])
            if self._finals:
                times, envs = zip(*self._episodes.ends, strict=True)
                after.numpy()[layout.index(envs, times)] = [final[index] for final in self._finals]
            out[("next", *path)] = after
        flags = {
            "done": self._terminated | self._truncated,
            "terminated": self._terminated,
            "truncated": self._truncated,
        }
        for name, flag in flags.items():
            out["next", name] = layout.column(flag)
            # No row starts at the end of an episode.
            out[(name,)] = torch.zeros_like(out["next", name])
        out["next", "reward"] = layout.column(self._rewards)
        return {**out, **self._episodes.entries(layout)}
