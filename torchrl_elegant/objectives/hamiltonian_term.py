"""The Hamiltonian term, and where its slices come from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor
from torchrl.objectives import LossModule

from torchrl_elegant.data import BestSlices
from torchrl_elegant.objectives.bounded import add_bounded
from torchrl_elegant.objectives.hamiltonian import HamiltonianLoss
from torchrl_elegant.objectives.hamiltonian_state import load_into, state_of
from torchrl_elegant.objectives.shared_actor import share_actor
from torchrl_elegant.objectives.slice_rewards import require_values
from torchrl_elegant.objectives.stored_actions import stored_log_prob
from torchrl_elegant.objectives.written_hamiltonian import backward_hamiltonian

# Keys that base losses may have under the same names.
_SHARED = ("action", "sample_log_prob", "value", "reward", "done", "terminated")


class HamiltonianTerm:
    """A ``HamiltonianLoss`` and the store whose slices it is given.

    Args:
        loss: over the actor that the base loss trains; it gives one number.
        store: keeps what ``loss`` reads, ``store_keys`` of it.
        slices: drawn for each term, L.
        period: calls of ``step`` from one term to the next; the first of them has one.
        bound: what the norm of the gradient that ``backward`` adds may be at most, in norms of the
            gradient that is there; None for any.
        prepare: shows slices, and steps before they are stored, as the actor should see them.
        reward_scale: factor that the rewards of ``extend`` have been given already; the term goes
            on with slices and a scale of its own factor alone.
    """

    name = "loss_hamiltonian"

    def __init__(
        self,
        loss: HamiltonianLoss,
        store: BestSlices,
        *,
        slices: int = 16,
        period: int = 1,
        bound: float | None = None,
        prepare: Callable[[TensorDictBase], TensorDictBase] | None = None,
        reward_scale: float = 1.0,
    ) -> None:
        for name, value in (("slices", slices), ("period", period)):
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1, got `{value}`")
        if bound is not None and not 0.0 < bound < math.inf:
            raise ValueError(f"`bound` must be positive and finite, or None, got `{bound}`")
        if loss.reduction == "none":
            raise ValueError("`reduction` must be mean or sum beside another loss, got `none`")
        self.loss, self.store, self.slices, self.period = loss, store, slices, period
        self.bound, self.prepare, self.reward_scale = bound, prepare, reward_scale
        self._calls = 0

    @classmethod
    def for_loss(
        cls,
        base_loss: LossModule,
        *,
        horizon: int,
        max_age: int,
        capacity: int | None = None,
        best: float = 1.0,
        gamma: float = 0.99,
        seed: int = 0,
        slices: int = 16,
        period: int = 1,
        bound: float | None = None,
        prepare: Callable[[TensorDictBase], TensorDictBase] | None = None,
        reward_scale: float = 1.0,
        **options: Any,
    ) -> HamiltonianTerm:
        """A term over the actor that ``base_loss`` trains, and a store that suits it.

        Keys are those that ``base_loss`` has by now, or else those that the actor writes.
        ``horizon``, ``max_age``, ``capacity``, ``best`` and ``seed`` are those of ``BestSlices``,
        ``options`` those of ``HamiltonianLoss``, ``gamma`` is for both.
        """
        if not hasattr(base_loss, "actor_network"):
            raise TypeError(
                f"`base_loss` must have an `actor_network`, got "
                f"`{type(base_loss).__name__}`, which learns values alone"
            )
        loss = HamiltonianLoss(base_loss.actor_network, gamma=gamma, **options)
        share_actor(base_loss, loss)
        keys = loss.tensor_keys
        loss.set_keys(
            **{name: getattr(base_loss.tensor_keys, name, getattr(keys, name)) for name in _SHARED}
        )
        store = BestSlices(
            horizon=horizon,
            max_age=max_age,
            capacity=capacity,
            best=best,
            keys=loss.store_keys,
            gamma=gamma,
            reward_key=keys.reward,
            done_key=keys.done,
            terminated_key=keys.terminated,
            device=next(loss.parameters()).device,
            seed=seed,
        )
        return cls(
            loss,
            store,
            slices=slices,
            period=period,
            bound=bound,
            prepare=prepare,
            reward_scale=reward_scale,
        )

    def extend(self, batch: TensorDictBase, *, stream: int = 0) -> None:
        """Take in newly collected steps ``[*envs, time]`` of the environments of ``stream``.

        Where nobody has written how likely the actions were, it is how likely the actor finds them
        now: data that an actor has just collected, by itself or nearly so.
        """
        key = self.log_prob_key
        if key in self.loss.store_keys and batch.get(key, None) is None:
            with torch.no_grad():
                found = stored_log_prob(self.loss, self._shown(batch), sigma=self.loss.sigma)
            batch = batch.copy().set(key, found)
        if self.loss.baseline == "value":
            require_values(batch, self.loss.tensor_keys.value)
        self.loss.observe(self.store.extend(batch, stream=stream).to(self._device))

    @property
    def log_prob_key(self) -> NestedKey:
        """Where steps say how likely their actions were."""
        return self.loss.tensor_keys.sample_log_prob

    @property
    def actor_rests(self) -> bool:
        """Whether the base loss has left the actor out of the present update."""
        return all(param.grad is None for param in self.loss.parameters())

    def step(self) -> Tensor | None:
        """The term where one is due and there are slices to make it of."""
        drawn = self._drawn()
        return None if drawn is None else self.loss(drawn).get(self.name)

    def backward(self) -> Tensor | None:
        """As ``step``, with the term's gradient added to the parameters already."""
        drawn = self._drawn()
        if drawn is None:
            return None
        if self.bound is None:
            return backward_hamiltonian(self.loss, drawn)
        params = list(self.loss.parameters())
        own = [param.grad for param in params]
        for param in params:
            param.grad = None
        term = backward_hamiltonian(self.loss, drawn)
        add_bounded(params, own, self.bound)
        return term

    def state_dict(self) -> dict[str, Any]:
        return {**state_of(self), "calls": self._calls}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._calls = state_dict["calls"]
        load_into(self, state_dict)

    def _drawn(self) -> TensorDictBase | None:
        due = self._calls % self.period == 0
        self._calls += 1
        if not due or not len(self.store):
            return None
        return self._shown(self.store.sample(self.slices))

    @property
    def _device(self) -> torch.device:
        return next(self.loss.parameters()).device

    def _shown(self, steps: TensorDictBase) -> TensorDictBase:
        """Steps as the actor should see them, where it is."""
        steps = steps.to(self._device)
        return steps if self.prepare is None else self.prepare(steps)
