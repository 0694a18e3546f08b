"""The learner of algorithms that learn from whole rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor

from torchrl_elegant.algorithms import Parts
from torchrl_elegant.data.running_statistics import alone
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.loss_adapter import as_rollout_loss


class RolloutLearner(Learner):
    """Learner whose loss first turns a rollout into rows to learn from.

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
        self.target_kl, self.kl_rate = parts.target_kl, parts.kl_rate
        self._rollout_loss = as_rollout_loss(parts.loss)
        self._rollout_loss.connect(alone if self.ranks is None else self.ranks.gather)
        self._epochs, self._images = 0, 1

    def rows(self, rollout: TensorDictBase) -> TensorDictBase:
        """The steps of a rollout ``[*envs, T]``, or sequences of them, with their advantages."""
        self._epochs = 0
        # A copy: a loss writes into what it is shown, and add-ons read what was collected.
        shown = rollout.copy()
        for add_on in self.add_ons.values():
            shown = add_on.show_rollout(shown)
        self._images = shown.numel() // rollout.numel()
        estimated = self._rollout_loss.estimate(shown)
        for add_on in self.add_ons.values():
            add_on.observe_rollout(rollout, estimated)
        return self._rollout_loss.rows(estimated)

    @torch.no_grad()
    def report(self, rows: TensorDictBase) -> dict[str, Tensor]:
        """Statistics of the policy after its updates, such as how far it has moved."""
        own = {} if self.target_kl is None else {"epochs": torch.tensor(float(self._epochs))}
        if self.kl_rate is not None:
            # A copy: the rate moves on before the numbers are read.
            own["lr"] = self.kl_rate.lr.clone()
        return self._rollout_loss.report(self._collected(rows)) | own

    @torch.no_grad()
    def is_far(self, rows: TensorDictBase) -> bool:
        """True if an epoch took the policy as far as it may go from the one that collected."""
        self._epochs += 1
        if self.target_kl is None and self.kl_rate is None:
            return False
        found = self._rollout_loss.divergence(self._collected(rows))
        if self.ranks is not None:
            # All ranks make the same number of updates.
            found = self.ranks.average_(found)
        if self.kl_rate is not None:
            self.kl_rate.follow(found)
        return self.target_kl is not None and found.item() > self.target_kl

    def _collected(self, rows: TensorDictBase) -> TensorDictBase:
        """Rows of what was collected, without their mirror images."""
        return rows if self._images == 1 else rows[: rows.shape[0] // self._images]

    @property
    def metric_names(self) -> list[str]:
        own = [] if self.target_kl is None else ["epochs"]
        own += [] if self.kl_rate is None else ["lr"]
        return list(dict.fromkeys([*super().metric_names, *self._rollout_loss.report_keys, *own]))

    def state_dict(self) -> dict[str, Any]:
        rate = {} if self.kl_rate is None else {"kl_rate": self.kl_rate.state_dict()}
        return super().state_dict() | rate

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict)
        if self.kl_rate is not None and "kl_rate" in state_dict:
            self.kl_rate.load_state_dict(state_dict["kl_rate"])

    def shown(self, batch: TensorDictBase) -> TensorDictBase:
        """Give rows as they are: they come from a rollout that was shown as a whole."""
        return batch
