"""The Hamiltonian term beside another loss, with the store of its slices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from torch import Tensor
from torchrl._utils import logger as torchrl_logger
from torchrl.objectives import LossModule

from torchrl_elegant.data import BestSlices
from torchrl_elegant.functional import norm_of
from torchrl_elegant.objectives.hamiltonian.loss import HamiltonianLoss, require_values
from torchrl_elegant.objectives.hamiltonian.stored_actions import stored_log_prob
from torchrl_elegant.objectives.hamiltonian.written import backward_hamiltonian


def share_actor(base_loss: LossModule, loss: LossModule) -> None:
    """Make ``loss`` hold the parameters of the actor that ``base_loss`` trains."""
    params = base_loss._modules.get("actor_network_params")
    if params is None:  # TorchRL's ``functional=False``: the network holds them itself
        params = TensorDict.from_module(base_loss.actor_network, as_module=True)
    # Where there is such an object it is the same: casts, moves and copies reach both.
    loss.actor_network_params = params


def add_bounded(params: Sequence[Tensor], own: Sequence[Tensor | None], bound: float) -> None:
    """Add ``own`` gradients to those in ``params``, whose norm is first brought down to ``bound``
    times that of ``own``.

    >>> weight = torch.nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.tensor([0.0, 8.0])
    >>> add_bounded([weight], [torch.tensor([4.0, 0.0])], 0.5)
    >>> weight.grad.tolist()
    [4.0, 2.0]
    """
    base = [grad for grad in own if grad is not None]
    added = [param.grad for param in params if param.grad is not None]
    if base and added:
        most = bound * norm_of(base)
        torch._foreach_mul_(added, (most / norm_of(added).clamp_(min=1e-30)).clamp_(max=1.0))
    both = []
    for param, grad in zip(params, own, strict=True):
        if param.grad is None:
            param.grad = grad
        elif grad is not None:
            both.append((param.grad, grad))
    if both:
        torch._foreach_add_(*map(list, zip(*both, strict=True)))


class Term(Protocol):
    loss: HamiltonianLoss
    store: BestSlices
    reward_scale: float


def state_of(term: Term) -> dict[str, Any]:
    return {
        "baseline": term.loss.baseline,
        "reward_scale": term.reward_scale,
        "scale": term.loss.scale.state_dict(),
        "store": term.store.state_dict(),
    }


def load_into(term: Term, state: Mapping[str, Any]) -> None:
    """Take over slices and the scale of their rewards, as far as the term's options let it.

    Options may change when a run goes on: slices are soon replaced anyway.
    """
    # Terms of before there was a factor have stored none.
    baseline, factor = state.get("baseline"), state.get("reward_scale", term.reward_scale)
    same_rewards = factor == term.reward_scale
    if same_rewards and baseline == term.loss.baseline:
        term.loss.scale.load_state_dict(state["scale"])
    else:
        # The mean of other numbers would make all that comes look good, or none of it.
        term.loss.scale.reset()
        told = "the H-term measures rewards anew: baseline was %s, reward_scale %s"
        torchrl_logger.info(told, baseline, factor)
    if not same_rewards:
        return
    try:
        term.store.load_state_dict(state["store"])
    except ValueError as error:
        torchrl_logger.info("the H-term begins with a new store: %s", error)


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
