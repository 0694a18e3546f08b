"""Losses inside TorchRL's trainers, and losses that learn from rollouts."""

from __future__ import annotations

from tensordict import TensorDictBase
from torch import Tensor
from torchrl.objectives import LossModule
from torchrl.trainers import Trainer

from torchrl_elegant.objectives.common.update_loss import RolloutLoss, UpdateLoss, minimized
from torchrl_elegant.objectives.common.whole_loss import WholeLoss


class TrainerLoss:
    """Loss that is evaluated through a TorchRL trainer, whose learners average its gradients.

    Args:
        loss: the learner's.
        trainer: calls the loss module whole, or one of its methods by name.
    """

    def __init__(self, loss: UpdateLoss, trainer: Trainer) -> None:
        self._loss, self._trainer = loss, trainer
        self.splits_actor, self.observes = loss.splits_actor, loss.observes
        self.metric_names, self.priority_key = loss.metric_names, loss.priority_key

    def observe(self, tensordict: TensorDictBase) -> None:
        self._loss.observe(tensordict)

    def update_terms(self, tensordict: TensorDictBase, *, actor: bool = True) -> dict[str, Tensor]:
        if isinstance(self._loss, WholeLoss):
            return self._loss.reduced(self._trainer.compute_loss(tensordict))
        whole = actor or not self._loss.splits_actor
        return self._trainer.compute_loss(tensordict, "update_terms" if whole else "critic_terms")

    def backward_terms(
        self, tensordict: TensorDictBase, *, actor: bool = True
    ) -> dict[str, Tensor]:
        terms = dict(self.update_terms(tensordict, actor=actor))
        minimized(terms).backward()
        return terms


def as_rollout_loss(loss: LossModule | UpdateLoss) -> RolloutLoss:
    """Give ``loss`` where it can turn rollouts into rows; TypeError where it cannot."""
    if not isinstance(loss, RolloutLoss):
        raise TypeError(
            f"`loss` must keep the protocol RolloutLoss, got `{type(loss).__name__}`, which does "
            "not turn a rollout into rows; derive it from objectives.A2CLoss or ClipPPOLoss"
        )
    return loss
