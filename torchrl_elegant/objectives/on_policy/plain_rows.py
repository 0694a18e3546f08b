"""Checks that rows have the shapes that on-policy losses compute with directly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensordict import TensorDictBase
from tensordict.utils import NestedKey


def are_plain(
    tensordict: TensorDictBase,
    *,
    shape: Sequence[int],
    constant: NestedKey,
    columns: Iterable[NestedKey],
) -> bool:
    """True if ``constant`` is there without a gradient, and each of ``columns`` is ``[*shape, 1]``.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> rows = TensorDict({"action": torch.zeros(3, 2), "advantage": torch.zeros(3, 1)}, [3])
    >>> are_plain(rows, shape=rows.shape, constant="action", columns=["advantage"])
    True
    """
    given = tensordict.get(constant, None)
    if given is None or given.requires_grad:
        return False
    found = [tensordict.get(key, None) for key in columns]
    return all(x is not None and x.shape == (*shape, 1) for x in found)


def is_plain_log_prob(tensordict: TensorDictBase, key: NestedKey, *, shape: Sequence[int]) -> bool:
    """True if a stored log-probability is there, of ``shape``, and without gradient.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> is_plain_log_prob(TensorDict({"log_prob": torch.zeros(3)}, [3]), "log_prob", shape=[3])
    True
    """
    shape, drawn = tuple(shape), tensordict.get(key, None)
    if drawn is None or drawn.requires_grad:
        return False
    if drawn.shape == (*shape, 1) and shape:
        raise ValueError(
            f"`{key}` must have the shape of the batch, {shape}, got "
            f"`{tuple(drawn.shape)}`, which would pair every row with every other; squeeze its "
            "last dimension"
        )
    return drawn.shape == shape
