"""The random streams of a process, as a component of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torchrl._utils import logger
from torchrl.checkpoint import GlobalRNGState


class RandomState(GlobalRNGState):
    """TorchRL's ``GlobalRNGState`` that can be read where the GPUs are other ones.

    TorchRL raises there. Here the streams of the GPUs are left as they are seeded, with a warning.

    >>> sorted(RandomState().state_dict())[:2]
    ['numpy', 'python']
    """

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        state = dict(state_dict)
        present = {
            "torch_cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
            "torch_xpu": torch.xpu.device_count() if torch.xpu.is_available() else 0,
            "torch_mps": int(torch.backends.mps.is_available()),
        }
        for name, count in present.items():
            if name not in state:
                continue
            stored = 1 if isinstance(state[name], torch.Tensor) else len(state[name])
            if stored != count:
                del state[name]
                logger.warning(
                    "the random streams of %d devices (%s) are not restored: %d are here",
                    stored,
                    name,
                    count,
                )
        super().load_state_dict(state)
