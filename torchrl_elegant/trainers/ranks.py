"""Learner parallelism: several ranks train one policy with averaged gradients."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from torchrl_elegant.config.text import UsageError


class Ranks:
    """The processes that ``torchrun`` started, or this one alone.

    NCCL joins ranks on CUDA devices, gloo those on the CPU. NCCL has not been run by this project.

    >>> with Ranks() as ranks:
    ...     ranks.count, ranks.is_first
    (1, True)
    """

    def __init__(self, device: torch.device | None = None) -> None:
        self.count = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.device = device or torch.device("cpu")
        self._made = False  # the process group, which may be somebody else's
        if self.count > 1 and self.device.type == "cuda":
            if self.device.index is not None:
                raise UsageError(
                    f"`device` must be cuda under torchrun, got '{self.device}'; each rank takes "
                    "the GPU of its number, so set device=cuda"
                )
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))

    @classmethod
    def alone(cls, device: torch.device | None = None) -> Ranks:
        """A single process, whatever the environment variables say."""
        ranks = cls.__new__(cls)
        ranks.count, ranks.rank, ranks.device = 1, 0, device or torch.device("cpu")
        ranks._made = False
        return ranks

    @property
    def is_first(self) -> bool:
        """True if this rank evaluates, saves and reports."""
        return self.rank == 0

    def __enter__(self) -> Ranks:
        if self.count > 1 and not dist.is_initialized():
            if self.device.type == "cuda":
                torch.cuda.set_device(self.device)
            self._made = True
            dist.init_process_group("nccl" if self.device.type == "cuda" else "gloo")
        return self

    def __exit__(self, *error: object) -> None:
        if self._made and dist.is_initialized():
            dist.destroy_process_group()

    def average_gradients(self, params: Iterable[nn.Parameter]) -> None:
        """Replace every gradient by its mean over the ranks, in one message."""
        grads = [param.grad for param in params if param.grad is not None]
        flat = torch.cat([grad.reshape(-1) for grad in grads])
        dist.all_reduce(flat)
        flat /= self.count
        parts = flat.split([grad.numel() for grad in grads])
        parts = [part.view_as(grad) for part, grad in zip(parts, grads, strict=True)]
        torch._foreach_copy_(grads, parts)

    def average_(self, value: Tensor) -> Tensor:
        """Replace a tensor by its mean over the ranks; the tensor itself when alone."""
        if self.count > 1:
            dist.all_reduce(value)
            value /= self.count
        return value

    def gather(self, value: Tensor) -> list[Tensor]:
        """The tensors of all ranks, in their order, on the CPU."""
        if self.count == 1:
            return [value]
        parts = [torch.empty_like(value, device=self.device) for _ in range(self.count)]
        dist.all_gather(parts, value.to(self.device))
        return [part.cpu() for part in parts]

    def share(self, module: nn.Module) -> None:
        """Give every rank the first rank's parameters and buffers."""
        if self.count > 1:
            for tensor in module.state_dict().values():
                if isinstance(tensor, Tensor):
                    dist.broadcast(tensor, src=0)

    def same(self, value: Any) -> Any:
        """The first rank's value, on every rank."""
        values = [value]
        if self.count > 1:
            dist.broadcast_object_list(values, src=0)
        return values[0]

    def agree(self, reason: str | None) -> str | None:
        """Reason to stop of the first rank that has one; None if all ranks want to go on."""
        if self.count == 1:
            return reason
        vote = torch.tensor([float(reason is None)], device=self.device)
        dist.all_reduce(vote, op=dist.ReduceOp.MIN)
        if vote.item() > 0:
            return None
        reasons: list[str | None] = [None] * self.count
        dist.all_gather_object(reasons, reason)
        return next(found for found in reasons if found is not None)
