"""Adapter: any loss of TorchRL, or of a third party, as the protocol that a learner reads."""

from __future__ import annotations

from collections.abc import Sequence

from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.objectives import LossModule

from torchrl_elegant.objectives.common.update_loss import UpdateLoss, minimized


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
