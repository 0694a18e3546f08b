"""Add-ons to a learner's updates: one protocol, and the terms that stand beside a loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensordict import TensorDictBase
from torch import Tensor

from torchrl_elegant.data.running_statistics import Gather
from torchrl_elegant.objectives import HamiltonianTerm
from torchrl_elegant.objectives.off_policy.long_return import LongReturnFit


class AddOn:
    """Addition to a learner's updates: a subclass overrides the methods that it needs.

    A learner calls them in this order: ``observe`` for newly collected steps, ``show`` before each
    update, ``backward`` after the gradients of the loss. A learner of rollouts calls
    ``show_rollout`` and ``observe_rollout`` once for each rollout instead of ``observe`` and
    ``show``.
    """

    #: Name of its part in a learner's state.
    name: str

    @property
    def metric_names(self) -> Sequence[str]:
        """Names of the terms that ``backward`` may give."""
        return ()

    @property
    def observes(self) -> bool:
        """True if it must be shown every newly collected step, once."""
        return False

    def connect(self, gather: Gather) -> None:
        """Take the function that brings statistics of all ranks together."""

    def observe(self, batch: TensorDictBase, *, stream: int = 0) -> None:
        """Take note of new steps ``[*envs, time]`` of the environments of ``stream``."""

    def show(self, batch: TensorDictBase) -> TensorDictBase:
        """Give a batch as the loss should see it; ``batch`` itself stays as it is."""
        return batch

    def show_rollout(self, rollout: TensorDictBase) -> TensorDictBase:
        """Take note of a rollout and give it as the loss should see it."""
        return rollout

    def observe_rollout(self, rollout: TensorDictBase, estimated: TensorDictBase) -> None:
        """Take note of a rollout as it was collected, and of its advantages and values."""

    def backward(self, batch: TensorDictBase, *, actor_updated: bool) -> dict[str, Tensor]:
        """Add gradients to those of the loss; the terms that they come from."""
        return {}

    def restart(self) -> None:
        """Forget episodes under way: the steps that come next begin new ones."""

    def reseed(self, seed: int) -> None:
        """Begin own random streams anew."""

    def begin_with(self, policy: Mapping[str, Tensor], frames: int) -> None:
        """Take over its part of the state of a policy that was trained for ``frames``."""

    def state_dict(self) -> dict[str, Any]:
        """Give what must outlive the process.

        Options that it names under ``cannot_be_dropped`` must be on where the run goes on.
        """
        return {}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take up what ``state_dict`` gave."""


class HamiltonianAddOn(AddOn):
    """H-term beside a loss: it adds its gradient only when the actor is updated.

    Args:
        term: made by ``HamiltonianTerm.for_loss`` of the learner's loss.
    """

    name = "hterm"

    def __init__(self, term: HamiltonianTerm) -> None:
        self.term = term

    @property
    def metric_names(self) -> Sequence[str]:
        return (self.term.name,)

    @property
    def observes(self) -> bool:
        return True

    def observe(self, batch: TensorDictBase, *, stream: int = 0) -> None:
        # Stored log-probabilities are dropped: random actions of the warm-up have none.
        self.term.extend(batch.exclude(self.term.log_prob_key), stream=stream)

    def observe_rollout(self, rollout: TensorDictBase, estimated: TensorDictBase) -> None:
        # Observations as they were collected: slices are scaled when they are drawn.
        seen = rollout.select(*self.term.loss.actor_network.in_keys)
        self.term.extend(estimated.copy().update(seen))

    def backward(self, batch: TensorDictBase, *, actor_updated: bool) -> dict[str, Tensor]:
        term = self.term.backward() if actor_updated else None
        return {} if term is None else {self.term.name: term}

    def restart(self) -> None:
        self.term.store.restart()

    def reseed(self, seed: int) -> None:
        self.term.store.reseed(seed)

    def state_dict(self) -> dict[str, Any]:
        return self.term.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        if state_dict:
            self.term.load_state_dict(state_dict)


class LongReturnAddOn(AddOn):
    """Pull of the mean value to the mean of longer returns, beside a loss.

    Args:
        fit: over the critics of the learner's loss.
    """

    name = "long_return"

    def __init__(self, fit: LongReturnFit) -> None:
        self.fit = fit

    @property
    def metric_names(self) -> Sequence[str]:
        return (self.fit.name,)

    def backward(self, batch: TensorDictBase, *, actor_updated: bool) -> dict[str, Tensor]:
        term = self.fit(batch)
        term.backward()
        return {self.fit.name: term}
