"""Where whole rollouts come from, for algorithms that learn from each of them once."""

from __future__ import annotations

from collections.abc import Iterator

from tensordict import TensorDictBase
from torchrl.collectors import BaseCollector

from torchrl_elegant.collectors import ParallelCollector
from torchrl_elegant.trainers.collecting import Collecting
from torchrl_elegant.trainers.learner import Learner


class RolloutSource(Collecting):
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

    def __init__(
        self,
        collector: BaseCollector,
        learner: Learner,
        *,
        total_frames: int,
        frames: int = 0,
        ranks: int = 1,
    ) -> None:
        super().__init__(collector, learner, total_frames=total_frames, frames=frames, ranks=ranks)
        self._device = next(learner.policy.parameters()).device

    def __iter__(self) -> Iterator[TensorDictBase]:
        for collected in self._collector:
            rollout = self._cut(collected)
            self._count(rollout)
            yield rollout.to(self._device)
            if self.frames >= self._total:
                return

    def debt(self) -> float:
        """Nothing is owed: a rollout is learnt from before the next is collected."""
        return 0.0

    def _cut(self, rollout: TensorDictBase) -> TensorDictBase:
        steps = rollout.shape[-1]
        per_step = rollout.numel() // steps * self._ranks
        return rollout[..., : min(steps, -(-(self._total - self.frames) // per_step))]


class WorkerRollouts(RolloutSource):
    """Rollouts from worker processes, which take up new weights by themselves."""

    def __init__(self, collector: ParallelCollector, learner: Learner, **counts: int) -> None:
        super().__init__(collector, learner, **counts)
        # Of workers that are ahead only the rest of their round is waited for.
        self.activity = "wait" if collector.is_ahead else "collect"

    def push(self, updates: int) -> None:
        if updates:
            self._collector.update_policy_weights_(self._learner.policy)
