"""A `state_dict` as one component of a checkpoint, written so that a full disk is an error."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torchrl.checkpoint import StateDictCheckpointAdapter

__all__ = ["TorchAdapter", "write_torch"]


class TorchAdapter(StateDictCheckpointAdapter):
    """TorchRL's `state_dict` component in its torch form, read back with `weights_only`.

    The default form writes memory maps, and on a full disk these end the process with SIGBUS.

    >>> TorchAdapter().payload_format
    'torch'
    """

    def __init__(self) -> None:
        super().__init__("torch")

    def save(
        self, component: Any, path: Path, *, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        path.mkdir(parents=True, exist_ok=True)
        write_torch(path / self.state_torch, component.state_dict(*args, **kwargs))


def write_torch(path: Path, state: Any) -> None:
    """`torch.save` whose failure on a full disk is an `OSError`.

    Given a path or an open file, `torch.save` raises a RuntimeError that hides the cause.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_torch(Path(folder) / "state.pt", {"step": 3})
    ...     torch.load(Path(folder) / "state.pt", weights_only=True)
    {'step': 3}
    """
    data = io.BytesIO()
    torch.save(state, data)
    path.write_bytes(data.getbuffer())
