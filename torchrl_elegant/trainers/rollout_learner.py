"""The learner of algorithms that learn from whole rollouts."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase
from torch import Tensor

from torchrl_elegant.trainers.learner import Learner, LossCall


class RolloutLearner(Learner):
    """A learner whose loss first turns a rollout into rows to learn from.

    The loss has ``estimate(rollout)``, which writes advantages and value targets; ``row_keys``,
    what an update reads; ``update_terms(rows)``, what it minimises; and ``report_keys``, what
    ``forward`` reports beside ``out_keys``.

    >>> from torchrl_elegant.algorithms import PPOConfig
    >>> from torchrl_elegant.envs import make_env
    >>> env = make_env("Pendulum-v1", num_envs=4)
    >>> learner = RolloutLearner(PPOConfig(num_cells=(8,)).build(env))
    >>> rows = learner.rows(env.rollout(5, learner.policy).detach())
    >>> rows.shape, sorted(learner.update(rows))
    (torch.Size([20]), ['loss_critic', 'loss_objective'])
    """

    def rows(self, rollout: TensorDictBase) -> TensorDictBase:
        """The transitions of a rollout ``[*envs, T]``, with their advantages."""
        estimated = self.loss.estimate(self._prepared_rollout(rollout))
        return estimated.select(*self.loss.row_keys).reshape(-1)

    @torch.no_grad()
    def report(self, rows: TensorDictBase) -> dict[str, Tensor]:
        """What can be said of the policy after its updates, such as how far it has moved."""
        terms = self.loss(rows).items()
        return {name: value.mean() for name, value in terms if not name.startswith("loss_")}

    @property
    def metric_names(self) -> list[str]:
        return list(dict.fromkeys([*super().metric_names, *self.loss.report_keys]))

    def _prepared_rollout(self, rollout: TensorDictBase) -> TensorDictBase:
        if self.prepare is None:
            return rollout
        self.prepare.observe_rewards(rollout, gather=self._gather)
        prepared = self.prepare(rollout)
        # Only now: the log-probabilities are those of the policy as it saw this rollout.
        self.prepare.observe_states(rollout, gather=self._gather)
        return prepared

    def _prepared(self, batch: TensorDictBase) -> TensorDictBase:
        """Rows come from a rollout that was prepared as a whole."""
        return batch

    def _terms(self, batch: TensorDictBase, call: LossCall) -> dict[str, Tensor]:
        return call(batch, "update_terms")
