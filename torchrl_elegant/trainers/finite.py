"""What a run must not go on with."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor


class DivergedError(FloatingPointError):
    """A term of the loss, or a parameter, is not a finite number."""


def require_finite(named: Iterable[tuple[str, Tensor]], when: str) -> None:
    """Name the first tensor that is not finite, by its value if it is a number.

    >>> import torch
    >>> require_finite([("loss_actor", torch.zeros(()))], "at update 1")
    """
    for name, value in named:
        if not bool(value.isfinite().all()):
            found = "not finite" if value.ndim else value.item()
            raise DivergedError(
                f"`{name}` is {found} {when}; lower the learning rate, set max_grad_norm, or look "
                "for extreme rewards or observations"
            )
