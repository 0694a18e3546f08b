"""Keeping freed memory for the next update."""

from __future__ import annotations

import ctypes

# Parameters of glibc's mallopt, and the largest threshold it takes.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_BYTES = 1 << 25


def keep_freed_blocks() -> bool:
    """Have this process keep freed blocks of up to 32 MiB instead of returning them at once.

    An update on the CPU allocates and frees the same activations again and again. Blocks beyond
    128 KiB, those of a 256 wide ensemble, otherwise go back to the kernel each time and are paged
    in anew: a tenth of the update. Returns whether the C library took the setting; others than
    glibc leave things as they are.

    >>> keep_freed_blocks() in (True, False)
    True
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _BYTES)) and bool(mallopt(_TRIM_THRESHOLD, 16 * _BYTES))
