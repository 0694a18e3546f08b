"""Equality of nested states, tensors bit for bit."""

from __future__ import annotations

import torch


def assert_same(left, right) -> None:
    """Same types, same keys in the same order, same values."""
    assert type(left) is type(right)
    if isinstance(left, torch.Tensor):
        assert torch.equal(left, right)
    elif isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_same(one, other)
    else:
        assert left == right


# TorchRL's losses whose priorities are squared errors; this package's are absolute.
SQUARED = ("DQNLoss", "DDPGLoss", "TD3Loss", "REDQLoss")


def as_written_by(loss, error: torch.Tensor) -> torch.Tensor:
    """An absolute error as ``loss`` writes it, which may be TorchRL's."""
    kind = type(loss)
    squared = kind.__module__.startswith("torchrl.") and kind.__name__ in SQUARED
    return error.square() if squared else error
