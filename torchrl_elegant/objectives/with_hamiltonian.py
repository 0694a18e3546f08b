"""The Hamiltonian term beside any loss that has an actor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import dispatch
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.objectives import LossModule

from torchrl_elegant.data import BestSlices
from torchrl_elegant.objectives.hamiltonian import HamiltonianLoss
from torchrl_elegant.objectives.stored_actions import stored_log_prob


class HamiltonianTerm:
    """A ``HamiltonianLoss`` and the store whose slices it is given.

    Args:
        loss: over the actor that the base loss trains.
        store: keeps what ``loss`` reads, ``store_keys`` of it.
        slices: drawn for each term, L.
        period: calls of ``step`` from one term to the next; the first of them has one.
        prepare: shows slices, and steps before they are stored, as the actor should see them.
    """

    name = "loss_hamiltonian"

    def __init__(
        self,
        loss: HamiltonianLoss,
        store: BestSlices,
        *,
        slices: int = 16,
        period: int = 1,
        prepare: Callable[[TensorDictBase], TensorDictBase] | None = None,
    ) -> None:
        for name, value in (("slices", slices), ("period", period)):
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1, got `{value}`")
        self.loss, self.store, self.slices, self.period = loss, store, slices, period
        self.prepare = (lambda steps: steps) if prepare is None else prepare
        self._calls, self._actor = 0, list(loss.parameters())

    @classmethod
    def for_loss(
        cls,
        base_loss: LossModule,
        *,
        horizon: int,
        capacity: int,
        max_age: int,
        gamma: float = 0.99,
        seed: int = 0,
        slices: int = 16,
        period: int = 1,
        prepare: Callable[[TensorDictBase], TensorDictBase] | None = None,
        **options: Any,
    ) -> HamiltonianTerm:
        """A term over the actor that ``base_loss`` trains, and a store that suits it.

        ``horizon``, ``capacity``, ``max_age`` and ``seed`` are those of ``BestSlices``, ``options``
        those of ``HamiltonianLoss``, ``gamma`` is for both.
        """
        if not hasattr(base_loss, "actor_network"):
            raise TypeError(
                f"`base_loss` must have an `actor_network`, got "
                f"`{type(base_loss).__name__}`, which learns values alone"
            )
        loss = HamiltonianLoss(base_loss.actor_network, gamma=gamma, **options)
        if "actor_network_params" in base_loss._modules:
            # The same object: casts, moves and copies reach both or neither.
            loss.actor_network_params = base_loss.actor_network_params
        store = BestSlices(
            horizon=horizon,
            capacity=capacity,
            max_age=max_age,
            keys=loss.store_keys,
            gamma=gamma,
            device=next(loss.parameters()).device,
            seed=seed,
        )
        return cls(loss, store, slices=slices, period=period, prepare=prepare)

    def extend(self, batch: TensorDictBase, *, stream: int = 0) -> None:
        """Take in newly collected steps ``[*envs, time]`` of the environments of ``stream``.

        Where nobody has written how likely the actions were, it is how likely the actor finds them
        now: data that an actor has just collected, by itself or nearly so.
        """
        key = self.loss.tensor_keys.sample_log_prob
        if self.loss.form != "log" and batch.get(key, None) is None:
            device = next(self.loss.parameters()).device
            with torch.no_grad():
                seen = self.prepare(batch.to(device))
                batch = batch.copy().set(
                    key, stored_log_prob(self.loss, seen, sigma=self.loss.sigma)
                )
        self.loss.observe(self.store.extend(batch, stream=stream))

    @property
    def actor_rests(self) -> bool:
        """Whether the base loss has left the actor out of the present update."""
        return all(param.grad is None for param in self._actor)

    def step(self) -> Tensor | None:
        """The term where one is due and there are slices to make it of."""
        due = self._calls % self.period == 0
        self._calls += 1
        if not due or not len(self.store):
            return None
        return self.loss(self.prepare(self.store.sample(self.slices))).get(self.name)

    def state_dict(self) -> dict[str, Any]:
        return {
            "scale": self.loss.scale.state_dict(),
            "store": self.store.state_dict(),
            "calls": self._calls,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.loss.scale.load_state_dict(state_dict["scale"])
        self.store.load_state_dict(state_dict["store"])
        self._calls = state_dict["calls"]


class WithHamiltonian(LossModule):
    """A loss and the H-term on its actor, as one loss.

    It gives what ``base_loss`` gives, and ``loss_hamiltonian`` beside it, which is 0 where no term
    is due. ``extend`` shows it what is collected. Its ``parameters`` are those of ``base_loss``;
    target updaters, value estimators and keys are set on ``base_loss`` itself.

    Args:
        base_loss: any loss with an ``actor_network``, of this package or of TorchRL.
        term: made by ``HamiltonianTerm.for_loss`` of the same.

    >>> from torchrl_elegant.modules import GaussianActor, StateValue
    >>> from torchrl_elegant.objectives import A2CLoss
    >>> shapes = {"observation": (3,)}
    >>> base = A2CLoss(
    ...     GaussianActor(observation=shapes, action_shape=(1,)), StateValue(observation=shapes)
    ... )
    >>> term = HamiltonianTerm.for_loss(base, horizon=4, capacity=8, max_age=100)
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
        self.base_loss, self.hamiltonian, self.term = base_loss, term.loss, term

    @property
    def in_keys(self) -> list[NestedKey]:
        """What ``base_loss`` reads."""
        return self.base_loss.in_keys

    @property
    def out_keys(self) -> list[NestedKey]:
        """What ``base_loss`` gives, and the term."""
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
        """What the term keeps, for ``state_dict``."""
        return self.term.state_dict()

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """The counterpart of ``get_extra_state``."""
        self.term.load_state_dict(state)
