"""Fusion: two states of the same networks become their average."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torchrl_elegant.data import Moments

# Entries of a learner's state that hold numbers to average; the others are counts and schedules.
_AVERAGED = ("loss", "optimizer")
_MOMENTS = frozenset(Moments(()).state_dict())


class FusionError(ValueError):
    """Two states are not of the same networks."""


def fused(better: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Average of two trials' states, each at 0.5, as FinRL-Podracer makes it.

    - Parameters, target networks and moments of the optimizer are averaged.
    - Counts of the optimizer's steps become the larger one. Adam divides its moments by ``1 - beta
      ^ step``: a count that is too small would make steps too large.
    - Running statistics are merged by count (``merged``).
    - All else is that of ``better``: schedules, frames, random streams.

    >>> def state(value):
    ...     loss = {"weight": torch.tensor([value])}
    ...     return {"learner": {"loss": loss, "optimizer": {}, "add_ons": {}}}
    >>> fused(state(1.0), state(4.0))["learner"]["loss"]["weight"]
    tensor([2.5000])
    """
    mine, others = better["learner"], other["learner"]
    learner = {
        **mine,
        **{name: _averaged(mine[name], others[name], name) for name in _AVERAGED},
        "add_ons": _joined(mine["add_ons"], others["add_ons"]),
    }
    return {**better, "learner": learner}


def merged(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Moments of the data of both: its mean and its variance, each part by its count.

    Both parts have seen what their common ancestor saw. So the count is the mean of theirs, and not
    the sum, which would double at each fusion until new data counts for nothing.

    >>> one, other = Moments(()), Moments(())
    >>> one.add(torch.tensor([1.0, 2.0])), other.add(torch.tensor([6.0, 7.0]))
    (None, None)
    >>> found = merged(one.state_dict(), other.state_dict())
    >>> found["count"].item(), found["mean"].item(), found["squares"].item()
    (2.0, 4.0, 13.0)
    """
    both = Moments(one["mean"].shape)
    for part in (one, other):
        both.merge(part["count"], part["mean"], part["squares"])
    return {"count": both.count / 2, "mean": both.mean, "squares": both.squares / 2}


def _averaged(one: Any, other: Any, place: str) -> Any:
    """Averages of all numbers that are learned, wherever they stand."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.shape != other.shape or one.dtype != other.dtype:
            _refuse(place, f"shapes {tuple(one.shape)} and {tuple(other.shape)}")
        if place.endswith(".step"):
            return torch.maximum(one, other)
        return one.lerp(other, 0.5) if one.is_floating_point() else one
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        if one.keys() != other.keys():
            name = sorted(map(str, one.keys() ^ other.keys()))[0]
            _refuse(f"{place}.{name}", "only one of them")
        return {name: _averaged(one[name], other[name], f"{place}.{name}") for name in one}
    return one


def _joined(one: Any, other: Any) -> Any:
    """Add-ons' states, in which moments are merged; all else is that of the first."""
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return one
    if one.keys() == other.keys() == _MOMENTS:
        return merged(one, other)
    return {name: _joined(one[name], other.get(name)) for name in one}


def _refuse(place: str, told: str) -> None:
    raise FusionError(
        f"two states must be of the same networks to be averaged, got `{place}` in {told}"
    )
