"""Advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783), in one process."""

from __future__ import annotations

from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl import objectives

from torchrl_elegant.functional import explained_variance
from torchrl_elegant.objectives.on_policy.loss import OnPolicyLoss


class A2CLoss(OnPolicyLoss, objectives.A2CLoss):
    """TorchRL's ``A2CLoss``, with the same arguments, keys and results, for less.

    ``L = -E[log pi(a|s) A] + c_v d(V, R) - c_e H``

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
        """What ``report`` has beside ``out_keys``."""
        return ["explained_variance"]

    def report(self, rows: TensorDictBase) -> dict[str, Tensor]:
        """How well the critic knew ``rows`` before it learnt from them."""
        value, target = (
            rows.get(key) for key in (self.tensor_keys.value, self.tensor_keys.value_target)
        )
        return {"explained_variance": explained_variance(value, target).mean()}

    def _gain(self, tensordict: TensorDictBase, log_prob: Tensor) -> Tensor:
        return log_prob * self._advantage(tensordict)

    def _gain_slope(self, tensordict: TensorDictBase, log_prob: Tensor) -> tuple[Tensor, Tensor]:
        advantage = self._advantage(tensordict)
        return log_prob * advantage, advantage.clone()

    def _is_usual(self) -> bool:
        return True
