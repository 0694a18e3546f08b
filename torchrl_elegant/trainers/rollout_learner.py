"""The learner of algorithms that learn from whole rollouts."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor

from torchrl_elegant.algorithms import Parts
from torchrl_elegant.trainers.learner import Learner, LossCall


class RolloutLearner(Learner):
    """A learner whose loss first turns a rollout into rows to learn from.

    The loss has ``estimate(rollout)``, which writes advantages and value targets; ``row_keys``,
    what is read of them; ``update_terms(rows)``, what an update minimises; ``report(rows)``, what
    can be said afterwards; ``report_keys``, what that has beside ``out_keys``; for parts with a
    ``target_kl``, ``divergence(rows)``; and it may have ``backward_terms(rows)``, which leaves the
    gradients of ``update_terms`` in the parameters, or returns None where it cannot.

    >>> from torchrl_elegant.algorithms import PPOConfig
    >>> from torchrl_elegant.envs import make_env
    >>> env = make_env("Pendulum-v1", num_envs=4)
    >>> learner = RolloutLearner(PPOConfig(num_cells=(8,)).assemble(env))
    >>> rows = learner.rows(env.rollout(5, learner.policy).detach())
    >>> rows.shape, sorted(learner.update(rows))
    (torch.Size([20]), ['loss_critic', 'loss_objective'])
    """

    def __init__(self, parts: Parts, **options: Any) -> None:
        super().__init__(parts, **options)
        self.target_kl = parts.target_kl
        self._epochs = 0
        # Gradients without a graph, where the loss can write them.
        self._write = getattr(self.loss, "backward_terms", lambda batch: None)

    def rows(self, rollout: TensorDictBase) -> TensorDictBase:
        """The transitions of a rollout ``[*envs, T]``, with their advantages."""
        self._epochs = 0
        seen = rollout.select(*self.loss.actor_network.in_keys)
        estimated = self.loss.estimate(self._prepared_rollout(rollout))
        if self.hterm is not None:
            # With its values, and observations as they were: slices are prepared when drawn.
            self.hterm.extend(estimated.copy().update(seen))
        return estimated.select(*self.loss.row_keys).reshape(-1)

    @torch.no_grad()
    def report(self, rows: TensorDictBase) -> dict[str, Tensor]:
        """What can be said of the policy after its updates, such as how far it has moved."""
        epochs = {} if self.target_kl is None else {"epochs": torch.tensor(float(self._epochs))}
        return self.loss.report(rows) | epochs

    @torch.no_grad()
    def is_far(self, rows: TensorDictBase) -> bool:
        """Whether an epoch took the policy as far as it may go from the one that collected."""
        self._epochs += 1
        if self.target_kl is None:
            return False
        found = self.loss.divergence(rows)
        if self.ranks is not None:
            # All ranks make the same number of updates.
            found = self.ranks.average_(found)
        return found.item() > self.target_kl

    @property
    def metric_names(self) -> list[str]:
        epochs = [] if self.target_kl is None else ["epochs"]
        return list(dict.fromkeys([*super().metric_names, *self.loss.report_keys, *epochs]))

    def _differentiate(self, batch: TensorDictBase, call: LossCall | None) -> dict[str, Tensor]:
        written = None if call is not None else self._write(batch)
        if written is None:
            return super()._differentiate(batch, call)
        self._total(written)
        return written

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
