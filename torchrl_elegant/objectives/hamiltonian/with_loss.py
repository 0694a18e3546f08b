"""The Hamiltonian term beside any loss that has an actor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import dispatch
from tensordict.utils import NestedKey
from torchrl.objectives import LossModule

from torchrl_elegant.objectives.hamiltonian.term import HamiltonianTerm, share_actor


class WithHamiltonian(LossModule):
    """Loss with the H-term on its actor, as one loss.

    Its output is that of ``base_loss`` and ``loss_hamiltonian``, which is 0 where no term is due.
    ``extend`` takes newly collected data. Its ``parameters`` are those of ``base_loss``; target
    updaters, value estimators and keys are set on ``base_loss`` itself.

    Args:
        base_loss: any loss with an ``actor_network``, of this package or of TorchRL.
        term: made by ``HamiltonianTerm.for_loss`` of the same.

    >>> from torchrl_elegant.modules import GaussianActor, StateValue
    >>> from torchrl_elegant.objectives import A2CLoss
    >>> shapes = {"observation": (3,)}
    >>> base = A2CLoss(
    ...     GaussianActor(observation=shapes, action_shape=(1,)), StateValue(observation=shapes)
    ... )
    >>> options = {"weight": 0.1, "gamma": 0.99, "form": "imitate", "baseline": "mean"}
    >>> term = HamiltonianTerm.for_loss(base, horizon=4, max_age=100, slices=16, **options)
    >>> WithHamiltonian(base, term).out_keys[-1]
    'loss_hamiltonian'
    """

    def __init__(self, base_loss: LossModule, term: HamiltonianTerm) -> None:
        super().__init__()
        if term.loss.actor_network is not base_loss.actor_network:
            raise ValueError(
                "`term` must be of the actor of `base_loss`, got another; make it with "
                "HamiltonianTerm.for_loss(base_loss, ...)"
            )
        if term.bound is not None:
            raise ValueError(
                f"`term` must have no bound in a loss, which sees no gradients, got `{term.bound}`"
                "; lower its weight"
            )
        self.base_loss, self.hamiltonian, self.term = base_loss, term.loss, term
        self._stored: Mapping[str, Any] | None = None
        self.register_load_state_dict_post_hook(_load_term)

    @property
    def in_keys(self) -> list[NestedKey]:
        """Keys that ``base_loss`` reads."""
        return self.base_loss.in_keys

    @property
    def out_keys(self) -> list[NestedKey]:
        """Keys of ``base_loss``, and the term's."""
        return [*self.base_loss.out_keys, HamiltonianTerm.name]

    def extend(self, batch: TensorDictBase, *, stream: int = 0) -> None:
        """See ``HamiltonianTerm.extend``."""
        self.term.extend(batch, stream=stream)

    @dispatch
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        terms = self.base_loss(tensordict)
        term = self.term.step()
        if term is None:
            term = torch.zeros((), device=next(self.parameters()).device)
        # Beside terms of single rows it is one number for them all.
        return terms.set(HamiltonianTerm.name, term.expand(terms.batch_size))

    def get_extra_state(self) -> dict[str, Any]:
        """State of the term, for ``state_dict``."""
        return self.term.state_dict()

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Keep the term's state until all else has been loaded."""
        self._stored = state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # In a copy, a network that holds its parameters is copied apart from them.
        share_actor(self.base_loss, self.hamiltonian)


def _load_term(loss: WithHamiltonian, _: object) -> None:
    # Last, because the scale, which the term may refuse, is loaded as a part of its loss, too.
    if loss._stored is not None:
        loss.term.load_state_dict(loss._stored)
        loss._stored = None
