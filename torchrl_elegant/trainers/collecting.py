"""What sources share that collect in this process."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from tensordict import TensorDictBase
from torchrl.collectors import BaseCollector

from torchrl_elegant.trainers.behaviour import copy_weights
from torchrl_elegant.trainers.learner import Learner


class Collecting:
    """Counts frames and episodes of ``collector``, whose policy follows the learner's."""

    activity = "collect"

    def __init__(
        self,
        collector: BaseCollector,
        learner: Learner,
        *,
        total_frames: int,
        frames: int,
        ranks: int,
    ) -> None:
        self.frames = frames
        self._collector, self._learner = collector, learner
        self._total, self._ranks = total_frames, ranks
        self._episodes: list[tuple[float, int]] = []
        # Before the first frame: how much a policy explores can depend on the progress.
        self._learner.at(self.frames / self._total)

    def push(self, updates: int) -> None:
        if updates and self._collector.policy is not self._learner.policy:
            copy_weights(self._learner.policy, self._collector.policy)

    def episodes(self) -> list[tuple[float, int]]:
        ended, self._episodes = self._episodes, []
        return ended

    def pause(self) -> AbstractContextManager:
        return nullcontext()

    def shutdown(self) -> None:
        self._collector.shutdown()

    def _count(self, batch: TensorDictBase) -> None:
        """Enter a batch of this rank, and of all others as large a one, as collected."""
        done = batch.get(("next", "done")).squeeze(-1)
        if done.any():
            after = batch.get("next")
            returns, lengths = (after.get(key)[done] for key in ("episode_reward", "step_count"))
            self._episodes += zip(
                returns.flatten().tolist(), lengths.flatten().tolist(), strict=True
            )
        self.frames += batch.numel() * self._ranks
        self._learner.at(self.frames / self._total)
