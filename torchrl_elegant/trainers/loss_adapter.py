"""Adapter: any loss of TorchRL, or of a third party, as the protocol that a learner reads."""

from __future__ import annotations

from collections.abc import Sequence

from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.objectives import LossModule
from torchrl.trainers import Trainer

from torchrl_elegant.objectives.common.update_loss import RolloutLoss, UpdateLoss, minimized


def as_update_loss(loss: LossModule | UpdateLoss) -> UpdateLoss:
    """Give ``loss`` itself where it keeps the protocol, else an adapter around it.

    >>> from torchrl_elegant.modules import QNetwork
    >>> from torchrl_elegant.objectives import DQNLoss
    >>> loss = DQNLoss(QNetwork(observation={"observation": (3,)}, choices=2))
    >>> as_update_loss(loss) is loss
    True
    """
    return loss if isinstance(loss, UpdateLoss) else WholeLoss(loss)


class WholeLoss:
    """Loss of TorchRL or of a third party, whose every update trains all that it has.

    Args:
        loss: gives its terms when it is called.
    """

    splits_actor = False
    observes = False

    def __init__(self, loss: LossModule) -> None:
        self.loss = loss

    @property
    def metric_names(self) -> Sequence[str]:
        return [str(name) for name in self.loss.out_keys]

    @property
    def priority_key(self) -> NestedKey | None:
        # Losses of TorchRL without priorities have no such key.
        return getattr(self.loss.tensor_keys, "priority", None)

    def observe(self, tensordict: TensorDictBase) -> None:
        """Take no note: a loss of another package asks for nothing."""

    def update_terms(self, tensordict: TensorDictBase, *, actor: bool = True) -> dict[str, Tensor]:
        return self.reduced(self.loss(tensordict))

    def backward_terms(
        self, tensordict: TensorDictBase, *, actor: bool = True
    ) -> dict[str, Tensor]:
        terms = self.update_terms(tensordict)
        minimized(terms).backward()
        return terms

    def reduced(self, terms: TensorDictBase) -> dict[str, Tensor]:
        """Means of the terms: some of TorchRL's come row by row, or are not announced."""
        known = self.loss.out_keys
        named = ((str(name), value) for name, value in terms.items())
        return {name: v.mean() for name, v in named if name in known or name.startswith("loss")}


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
