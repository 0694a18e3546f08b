"""Temperatures: weight of the entropy, fixed or learned."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class FixedTemperature:
    """A temperature alpha that does not change.

    Args:
        alpha: its value.
        target_entropy: used in the reported ``loss_alpha`` only; it trains nothing.

    >>> FixedTemperature(alpha=0.2).alpha
    0.2
    """

    alpha: float = 1.0
    target_entropy: float | str = "auto"

    def __post_init__(self) -> None:
        _check_positive("alpha", self.alpha)
        _check_entropy(self.target_entropy)


@dataclass(frozen=True, kw_only=True)
class LearnedTemperature:
    """A temperature that keeps the policy's entropy at a target (Haarnoja et al. 2018b, sec. 5).

    Args:
        alpha: its first value.
        minimum, maximum: bounds, none by default.
        target_entropy: a number, or ``"auto"`` for minus the number of action dimensions.

    >>> LearnedTemperature(target_entropy=-3.0).target_entropy
    -3.0
    """

    alpha: float = 1.0
    minimum: float | None = None
    maximum: float | None = None
    target_entropy: float | str = "auto"

    def __post_init__(self) -> None:
        _check_positive("alpha", self.alpha)
        for name in ("minimum", "maximum"):
            if getattr(self, name) is not None:
                _check_positive(name, getattr(self, name))
        if None not in (self.minimum, self.maximum) and self.minimum > self.maximum:  # type: ignore[operator]
            raise ValueError(
                f"`minimum` must not exceed `maximum`, got `{self.minimum}` and `{self.maximum}`"
            )
        _check_entropy(self.target_entropy)


Temperature = FixedTemperature | LearnedTemperature


def _check_positive(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"`{name}` must be positive, got `{value}`")


def _check_entropy(value: float | str) -> None:
    if isinstance(value, str) and value != "auto":
        raise ValueError(f"`target_entropy` must be a number or 'auto', got `{value}`")
