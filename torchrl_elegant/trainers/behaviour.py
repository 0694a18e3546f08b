"""The policy that acts, where the one that learns lives on another device."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn


def behaviour_copy(policy: nn.Module, device: torch.device) -> nn.Module:
    """The module that acts: the learner's own where it lives on ``device``, else a copy there."""
    here = next(policy.parameters()).device
    return policy if here == device else deepcopy(policy).to(device)


def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """Copy parameters and buffers across devices."""
    with torch.no_grad():
        # Blocking: a copy still under way from a GPU would be read half done.
        newest, stored = source.state_dict().values(), target.state_dict().values()
        for new, old in zip(newest, stored, strict=True):
            old.copy_(new)
