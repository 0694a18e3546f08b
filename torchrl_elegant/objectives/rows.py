"""What a loss may take for granted of the rows it is given."""

from __future__ import annotations

from collections.abc import Iterable

from tensordict import NestedKey, TensorDictBase


def are_plain(
    tensordict: TensorDictBase, *, log_prob: NestedKey, columns: Iterable[NestedKey]
) -> bool:
    """Whether nothing is missing, would broadcast, or would take a share of the gradient.

    That is a stored log-probability ``[*B]`` and columns ``[*B, 1]``.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> rows = TensorDict({"log_prob": torch.zeros(3), "advantage": torch.zeros(3, 1)}, [3])
    >>> are_plain(rows, log_prob="log_prob", columns=["advantage"])
    True
    """
    shape, drawn = tensordict.batch_size, tensordict.get(log_prob, None)
    if drawn is None or drawn.requires_grad:
        return False
    if drawn.shape == (*shape, 1) and shape:
        raise ValueError(
            f"`{log_prob}` must have the shape of the batch, {tuple(shape)}, got "
            f"`{tuple(drawn.shape)}`, which would pair every row with every other; squeeze its "
            "last dimension"
        )
    found = [tensordict.get(key, None) for key in columns]
    return drawn.shape == shape and all(x is not None and x.shape == (*shape, 1) for x in found)
