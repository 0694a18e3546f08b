"""The Hamiltonian term beside another loss, with the store of its slices."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from torch import Tensor
from torchrl.objectives import LossModule

from torchrl_elegant.data import BestSlices
from torchrl_elegant.functional import norm_of
from torchrl_elegant.objectives.hamiltonian.loss import HamiltonianLoss, require_values
from torchrl_elegant.objectives.hamiltonian.stored_actions import stored_log_prob

logger = logging.getLogger(__name__)


def share_actor(base_loss: LossModule, loss: LossModule) -> None:
    """Make ``loss`` hold the parameters of the actor that ``base_loss`` trains."""
    params = base_loss._modules.get("actor_network_params")
    if params is None:  # TorchRL's ``functional=False``: the network holds them itself
        params = TensorDict.from_module(base_loss.actor_network, as_module=True)
    # Where there is such an object it is the same: casts, moves and copies reach both.
    loss.actor_network_params = params


def add_bounded(params: Sequence[Tensor], own: Sequence[Tensor | None], bound: float) -> None:
    """Bound the gradients in ``params`` to ``bound`` times the norm of ``own``, and add ``own``.

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


# Keys that base losses may have under the same names.
_SHARED = ("action", "sample_log_prob", "value", "reward", "done", "terminated")


class HamiltonianTerm:
    """``HamiltonianLoss`` and the store that its slices are drawn from.

    A learner calls ``extend`` with newly collected steps, and ``backward`` in those updates in
    which the actor learns.

    Args:
        loss: over the actor that the base loss trains; it gives one number.
        store: keeps what ``loss`` reads, ``store_keys`` of it.
        slices: number of slices drawn for each term, L.
        period: calls of ``step`` or ``backward`` per term; the first call has one.
        bound: largest norm of the gradient that ``backward`` adds, in norms of the gradient that
            the actor has already; None for no bound.
        prepare: scales observations of slices as the actor sees them.
        reward_scale: factor that the rewards of ``extend`` have already; a stored state with
            another factor is not taken over.
    """

    name = "loss_hamiltonian"

    def __init__(
        self,
        loss: HamiltonianLoss,
        store: BestSlices,
        *,
        slices: int,
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
        gamma: float,
        seed: int = 0,
        slices: int,
        period: int = 1,
        bound: float | None = None,
        prepare: Callable[[TensorDictBase], TensorDictBase] | None = None,
        reward_scale: float = 1.0,
        **options: Any,
    ) -> HamiltonianTerm:
        """A term over the actor that ``base_loss`` trains, and a store that suits it.

        Keys are those that ``base_loss`` has by now, or else those that the actor writes.
        ``horizon``, ``max_age``, ``capacity``, ``best`` and ``seed`` are those of ``BestSlices``,
        ``options`` those of ``HamiltonianLoss``; ``gamma`` is for both.
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

        Actions without a stored log-probability get that of the present actor, which has just
        taken them, exactly or nearly so.
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
        """Entry of steps with the log-probability of their actions."""
        return self.loss.tensor_keys.sample_log_prob

    def step(self) -> Tensor | None:
        """Term of newly drawn slices; None where none is due or none are stored."""
        drawn = self._drawn()
        return None if drawn is None else self.loss(drawn).get(self.name)

    def backward(self) -> Tensor | None:
        """As ``step``, and add the term's gradient to the parameters.

        Call it only in updates in which the actor learns: ``period`` counts them.
        """
        drawn = self._drawn()
        if drawn is None:
            return None
        if self.bound is None:
            return self.loss.backward_term(drawn)
        params = list(self.loss.parameters())
        own = [param.grad for param in params]
        for param in params:
            param.grad = None
        term = self.loss.backward_term(drawn)
        add_bounded(params, own, self.bound)
        return term

    def state_dict(self) -> dict[str, Any]:
        return {
            "baseline": self.loss.baseline,
            "reward_scale": self.reward_scale,
            "scale": self.loss.scale.state_dict(),
            "store": self.store.state_dict(),
            "calls": self._calls,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over slices and the scale of their rewards, as far as the term's options allow.

        Options may change on resume: slices are soon replaced anyway.
        """
        self._calls = state_dict["calls"]
        # States of before there was a factor have none.
        baseline = state_dict.get("baseline")
        factor = state_dict.get("reward_scale", self.reward_scale)
        same_rewards = factor == self.reward_scale
        if same_rewards and baseline == self.loss.baseline:
            self.loss.scale.load_state_dict(state_dict["scale"])
        else:
            # With the mean of other numbers, all new slices would look good, or none.
            self.loss.scale.reset()
            told = "the H-term measures rewards anew: baseline was %s, reward_scale %s"
            logger.info(told, baseline, factor)
        if not same_rewards:
            return
        try:
            self.store.load_state_dict(state_dict["store"])
        except ValueError as error:
            logger.info("the H-term begins with a new store: %s", error)

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
        """Steps on the actor's device, scaled as it sees them."""
        steps = steps.to(self._device)
        return steps if self.prepare is None else self.prepare(steps)
