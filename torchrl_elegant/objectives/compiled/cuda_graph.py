"""CUDA graph: all kernels of a function of tensors, started by one call of the driver."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

logger = logging.getLogger(__name__)

# Calls before the capture, in which libraries make their workspaces.
_WARMUP = 2
_Run = Callable[[], list[Tensor]]


def capture(run: _Run) -> tuple[list[Tensor], Callable[[], None]]:
    """Results of ``run`` in memory of their own, and a function that computes them anew."""
    graph = torch.cuda.CUDAGraph()
    # Other threads may collect on the same GPU meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        results = run()
    return results, graph.replay


class CudaGraph:
    """Function of tensors on a GPU that is replayed as one CUDA graph.

    Each call copies ``given`` into the memory that the graph reads, replays, and copies the results
    out of the memory that the next replay writes. Nothing waits for the device. The first two calls
    run the function itself. If ``held`` move to other addresses, the function is captured again; if
    it cannot be captured, a warning says so, and it runs as it is.

    ``tensordict.nn.CudaGraphModule`` does the same, but waits for the device at each call.

    Args:
        function: gives tensors of the same shapes at each call.
        held: tensors that it reads or changes without being given them.

    This has not been run on a GPU; tests replace ``capture``.
    """

    def __init__(
        self, function: Callable[[Sequence[Tensor]], list[Tensor]], *, held: Sequence[Tensor]
    ) -> None:
        self._function, self._held = function, held
        self._calls = 0
        self._addresses: list[int] | None = None
        self._given: list[Tensor] = []
        self._like: list[list[Tensor]] = []  # results, by their types
        self._order: list[int] = []
        self._packed: list[Tensor] = []
        self._replay: Callable[[], None] | None = None

    def __call__(self, given: Sequence[Tensor]) -> list[Tensor]:
        if self._calls < _WARMUP:
            self._calls += 1
            return self._function(given)
        if self._addresses != self._places():
            self._capture(given)
        if self._replay is None:
            return self._function(given)
        torch._foreach_copy_(self._given, list(given))
        self._replay()
        parts = [
            part
            for packed, like in zip(self._packed, self._like, strict=True)
            for part in _unflatten_dense_tensors(packed.clone(), like)
        ]
        return [parts[index] for index in self._order]

    def _places(self) -> list[int]:
        return [*map(Tensor.data_ptr, self._held)]

    def _capture(self, given: Sequence[Tensor]) -> None:
        self._addresses, self._replay = self._places(), None
        self._given = [each.clone() for each in given]
        try:
            self._packed, self._replay = capture(self._packed_results)
        except RuntimeError as error:
            logger.warning("no CUDA graph, and slower for it: %s", str(error).splitlines()[0])

    def _packed_results(self) -> list[Tensor]:
        """One tensor for each type of the results: few copies instead of one for each gradient."""
        results = self._function(self._given)
        types = sorted({each.dtype for each in results}, key=str)
        order = [i for dtype in types for i, each in enumerate(results) if each.dtype is dtype]
        self._like = [[each for each in results if each.dtype is dtype] for dtype in types]
        self._order = [order.index(index) for index in range(len(results))]
        return [_flatten_dense_tensors(like) for like in self._like]
