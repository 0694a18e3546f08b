"""Advantage actor-critic in one process."""

from __future__ import annotations

from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl import objectives

from torchrl_elegant.functional import explained_variance, kl_estimate
from torchrl_elegant.objectives.on_policy.base import OnPolicyLoss


class A2CLoss(OnPolicyLoss, objectives.A2CLoss):
    r"""A2C (Mnih et al. 2016, arXiv:1602.01783, section 4): TorchRL's ``A2CLoss``, faster.

    .. math::

        L = -\mathrm{E}[\log \pi(a|s) \, A] + c_v \, \mathrm{E}[d(V(s), R)] - c_e \, \mathrm{E}[H]

    Same arguments, keys and results as TorchRL's.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> from torchrl_elegant.modules import CategoricalActor, StateValue
    >>> shapes = {"observation": (3,)}
    >>> actor = CategoricalActor(observation=shapes, choices=2)
    >>> loss = A2CLoss(actor, StateValue(observation=shapes))
    >>> batch = actor(TensorDict({"observation": torch.zeros(5, 3)}, [5])).detach()
    >>> _ = batch.set("advantage", torch.ones(5, 1)).set("value_target", torch.zeros(5, 1))
    >>> round(loss(batch)["loss_objective"].item(), 4)
    0.6931
    """

    @property
    def row_keys(self) -> list[NestedKey]:
        return list(dict.fromkeys([*super().row_keys, self.tensor_keys.value]))

    @property
    def report_keys(self) -> list[str]:
        """See ``RolloutLoss``."""
        return ["explained_variance"]

    def report(self, rows: TensorDictBase) -> dict[str, Tensor]:
        """Explained variance of the critic on ``rows`` before it learned from them."""
        value, target = (
            rows.get(key) for key in (self.tensor_keys.value, self.tensor_keys.value_target)
        )
        return {"explained_variance": explained_variance(value, target).mean()}

    def divergence(self, rows: TensorDictBase) -> Tensor:
        """Estimate of ``KL(mu, pi)``; ``rows`` must hold mu's log-probability of their actions."""
        drawn = rows.get(self.tensor_keys.sample_log_prob, None)
        if drawn is None:
            raise KeyError(
                f"rows must hold `{self.tensor_keys.sample_log_prob}` for a divergence, got none; "
                "keep it beside `row_keys`"
            )
        return kl_estimate(self._log_probs(rows)[0].reshape(drawn.shape) - drawn)

    def _gain(self, tensordict: TensorDictBase, log_prob: Tensor) -> Tensor:
        return log_prob * self._advantage(tensordict)

    def _gain_slope(self, tensordict: TensorDictBase, log_prob: Tensor) -> tuple[Tensor, Tensor]:
        advantage = self._advantage(tensordict)
        return log_prob * advantage, advantage.clone()

    def _is_usual(self) -> bool:
        return True
