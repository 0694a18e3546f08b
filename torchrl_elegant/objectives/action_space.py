"""How a loss learns in which form actions are written."""

from __future__ import annotations

from typing import Any

from torchrl.data import TensorSpec
from torchrl.data.utils import _find_action_space


def action_space_of(network: Any, given: str | TensorSpec | None) -> str:
    """TorchRL's name of the action space: what is ``given``, or what ``network`` says of itself.

    >>> from types import SimpleNamespace
    >>> action_space_of(SimpleNamespace(action_space="categorical"), None)
    'categorical'
    """
    for found in (given, getattr(network, "action_space", None), getattr(network, "spec", None)):
        if found is not None:
            return _find_action_space(found)
    raise ValueError(
        f"`action_space` must be given for a network of type `{type(network).__name__}`, got "
        "`None`; pass a spec, or one of one-hot, mult-one-hot, binary, categorical"
    )
