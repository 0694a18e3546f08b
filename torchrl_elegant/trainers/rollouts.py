"""Where whole rollouts come from, for algorithms that learn from each of them once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext

from tensordict import TensorDictBase
from torchrl.collectors import BaseCollector

from torchrl_elegant.trainers.behaviour import copy_weights
from torchrl_elegant.trainers.learner import Learner


class RolloutSource:
    """Yields rollouts ``[*envs, T]``, on the learner's device, until all frames are collected.

    Args:
        collector: yields rollouts of one size; its own ``total_frames`` must not end before this
            source's.
        learner: learns from them.
        total_frames: where collection ends, over all ``ranks``. The last rollout is cut after the
            step of all environments that reaches it.
        frames: frames collected before this run was resumed.
        ranks: processes that collect as many frames as this one at the same time.
    """

    activity = "collect"

    def __init__(
        self,
        collector: BaseCollector,
        learner: Learner,
        *,
        total_frames: int,
        frames: int = 0,
        ranks: int = 1,
    ) -> None:
        self.frames = frames
        self._collector, self._learner = collector, learner
        self._total, self._ranks = total_frames, ranks
        self._episodes: list[tuple[float, int]] = []
        self._device = next(learner.policy.parameters()).device

    def __iter__(self) -> Iterator[TensorDictBase]:
        for collected in self._collector:
            rollout = self._cut(collected)
            self._note_episodes(rollout)
            self.frames += rollout.numel() * self._ranks
            yield rollout.to(self._device)
            if self.frames >= self._total:
                return

    def debt(self) -> float:
        """Nothing is owed: a rollout is learnt from before the next is collected."""
        return 0.0

    def push(self, updates: int) -> None:
        if self._collector.policy is not self._learner.policy:
            copy_weights(self._learner.policy, self._collector.policy)

    def episodes(self) -> list[tuple[float, int]]:
        ended, self._episodes = self._episodes, []
        return ended

    def pause(self) -> AbstractContextManager:
        return nullcontext()

    def shutdown(self) -> None:
        self._collector.shutdown()

    def _cut(self, rollout: TensorDictBase) -> TensorDictBase:
        steps = rollout.shape[-1]
        per_step = rollout.numel() // steps * self._ranks
        return rollout[..., : min(steps, -(-(self._total - self.frames) // per_step))]

    def _note_episodes(self, rollout: TensorDictBase) -> None:
        done = rollout.get(("next", "done")).squeeze(-1)
        if done.any():
            after = rollout.get("next")
            returns, lengths = (after.get(key)[done] for key in ("episode_reward", "step_count"))
            self._episodes += zip(
                returns.flatten().tolist(), lengths.flatten().tolist(), strict=True
            )
