"""On-policy members: each learns from rollouts of its own, in minibatches of its own order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDictBase

from torchrl_elegant.algorithms import OnPolicyConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.trainers.population.members import Members
from torchrl_elegant.trainers.population.update import batches_of, stacked
from torchrl_elegant.trainers.rollout_learner import RolloutLearner


class OnPolicyMembers(Members):
    """Members that learn from each rollout once, as ``train_on_policy`` does.

    The arguments are those of ``Members``.
    """

    own = frozenset(
        {
            *("lr", "entropy_coeff", "clip_epsilon", "critic_coeff", "gamma", "lmbda"),
            *("log_std", "hidden_gain", "reward_scale"),
        }
    )

    def __init__(self, *args: Any, configs: Sequence[OnPolicyConfig], **others: Any) -> None:
        super().__init__(*args, configs=configs, **others)
        self._epochs, self._batch_size = configs[0].epochs, configs[0].batch_size
        for learner in self.learners:
            assert isinstance(learner, RolloutLearner)
            for name, given in (("target_kl", learner.target_kl), ("lr_kl", learner.kl_rate)):
                if given is not None:
                    raise UsageError(
                        f"`{name}` must be none in a vectorized population, whose members make "
                        "the same number of updates at rates that are set"
                    )

    def round(self) -> None:
        """Collect one rollout of each member, and learn from it."""
        rows = stacked([self._rows_of(index, part) for index, part in self.collected()])
        self.refresh()
        for _ in range(self._epochs):
            self._epoch(rows)
        self.look_after()

    def after_step(self, members: slice) -> None:
        """Do nothing: there are no targets."""

    def _rows_of(self, index: int, part: TensorDictBase) -> TensorDictBase:
        learner = self.learners[index]
        assert isinstance(learner, RolloutLearner)
        return learner.rows(part)

    def _epoch(self, rows: TensorDictBase) -> None:
        """One pass over the rows ``[P, N]``."""
        count, steps = rows.shape
        orders = [torch.randperm(steps, generator=generator) for generator in self.generators]
        places = torch.stack(orders)
        size = min(self._batch_size, steps)
        whole = steps // size
        several = places[:, : whole * size].reshape(count, whole, size).transpose(0, 1)
        for batch in batches_of(rows, several):
            self.update(batch, size=size)
        rest = places[:, whole * size :]
        if rest.numel():
            for batch in batches_of(rows, rest.unsqueeze(0)):
                self.update(batch, size=rest.shape[1])
