"""Devices: whether a number can be read from one without waiting."""

from __future__ import annotations

import torch


def reads_at_once(device: torch.device | str | None) -> bool:
    """True if the host reads a number from ``device`` without waiting for work under way.

    Every check of data that is made in a loop asks this first: elsewhere than on the CPU a single
    number costs a wait for all that is queued. Tests put a False in its place, and count.

    >>> reads_at_once("cpu"), reads_at_once(None), reads_at_once("cuda")
    (True, True, False)
    """
    return device is None or torch.device(device).type == "cpu"
