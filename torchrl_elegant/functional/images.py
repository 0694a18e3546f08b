"""Pictures: gray values, sizes, and their recognition by shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: Shares of red, green and blue in brightness (ITU-R BT.601-7, section 2.5.1).
LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def is_image(shape: Sequence[int]) -> bool:
    """True if an observation of this shape is a picture: it has three dimensions.

    >>> is_image((3, 64, 64)), is_image((2, 3))
    (True, False)
    """
    return len(shape) == 3


def has_channels_last(shape: Sequence[int]) -> bool:
    """True if a picture's last dimension is its smallest: simulators put colors there.

    >>> has_channels_last((64, 64, 3)), has_channels_last((4, 84, 84))
    (True, False)
    """
    return shape[2] < min(shape[0], shape[1])


def area_weights(size: int, wanted: int) -> np.ndarray:
    """Rows of weights ``[wanted, size]``: each new pixel is the mean of the old ones under it.

    >>> area_weights(4, 2).tolist(), (3 * area_weights(3, 2)).round().tolist()
    ([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]], [[2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    """
    edges = np.arange(wanted + 1) * (size / wanted)
    old = np.arange(size)
    overlap = np.minimum(edges[1:, None], old + 1) - np.maximum(edges[:-1, None], old)
    return (np.maximum(overlap, 0.0) * (wanted / size)).astype(np.float32)
