"""Compiling a recording, with what was compiled kept for the next run."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from torchrl_elegant.objectives.compiled.cache import folder_of, forget, is_kept, machine
from torchrl_elegant.objectives.compiled.cuda_graph import CudaGraph
from torchrl_elegant.objectives.compiled.products import (
    DECLARATION,
    OWN_PRODUCT,
    choose_products,
)
from torchrl_elegant.objectives.compiled.recording import Recording

logger = logging.getLogger(__name__)


def compile_recording(
    recording: Recording, given: Sequence[Tensor]
) -> Callable[[Sequence[Tensor]], list[Tensor]]:
    """Compile ``recording`` for tensors of the shapes of ``given``; the result is called with such.

    Compiled functions are kept in the user's cache folder, so that the same update compiles in less
    than a second the next time. On a GPU, the function is replayed as one CUDA graph.

    >>> callable(compile_recording)
    True
    """
    arguments = recording.arguments(given)
    compiled = compile_graph(recording.graph, arguments)
    if all(each.is_cuda for each in arguments):
        compiled = _as_cuda_graph(compiled, recording, count=len(given))

    @torch.no_grad()
    def run(given: Sequence[Tensor]) -> list[Tensor]:
        return compiled(*recording.arguments(given))

    return run


def compile_graph(module: fx.GraphModule, arguments: list[Any]) -> Callable[..., list[Tensor]]:
    """Compile a graph of tensors for arguments of these shapes and strides; it is rewritten."""
    start = time.perf_counter()
    logger.info("compiling the update, which takes some seconds the first time")
    choose_products(module.graph)
    module.recompile()
    digest = _digest(module, arguments)
    was_kept = is_kept(digest)
    try:
        compiled = _compile(module, arguments, digest)
    except Exception as error:
        if not was_kept:
            raise
        logger.info("what was kept of this update is damaged, and is made anew: %s", error)
        forget(digest)
        compiled = _compile(module, arguments, digest)
    logger.info("compiled in %.1f s", time.perf_counter() - start)
    return compiled


def _as_cuda_graph(
    function: Callable[..., list[Tensor]], recording: Recording, *, count: int
) -> Callable[..., list[Tensor]]:
    """Replay ``function`` of ``count`` tensors of a batch, those held, and random ones."""
    held = slice(count, count + len(recording.held))

    def with_held(values: Sequence[Tensor]) -> list[Tensor]:
        return function(*values[:count], *recording.held, *values[count:])

    graph = CudaGraph(with_held, held=recording.held)
    return lambda *arguments: graph([*arguments[: held.start], *arguments[held.stop :]])


@torch.no_grad()
def _compile(module: fx.GraphModule, arguments: list[Any], digest: str) -> Callable[..., Any]:
    # Slow to import, and needed by nobody who does not compile.
    from torch._inductor import standalone_compile
    from torch._inductor.runtime.cache_dir_utils import temporary_cache_dir

    with folder_of(digest) as folder, temporary_cache_dir(str(folder)):
        return standalone_compile(module, arguments, options=_options(arguments))


class _OwnOperations(dict[Any, list[str]]):
    """Operations with the functions that stand for them in C++.

    The compiler's cache takes a digest of its options, and cannot of operations.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, ([(str(operation), functions) for operation, functions in self.items()],)


def _options(arguments: Sequence[Tensor]) -> Any:
    if any(each.is_cuda for each in arguments):
        return {}
    # Kernels called from Python take a sixth more time with narrow networks. What stands between
    # matrix products is too little for several threads, which wait for each other longer.
    own = {"aot_inductor.custom_ops_to_c_shims": _OwnOperations({OWN_PRODUCT: [DECLARATION]})}
    return {"config_patches": {"cpp_wrapper": True, "cpp.threads": 1, **own}}


def _digest(module: fx.GraphModule, arguments: Sequence[Tensor]) -> str:
    """Name of the folder; what lies in it is checked by the compiler's own, stricter hash."""
    shapes = [(tuple(x.shape), x.stride(), str(x.dtype), str(x.device)) for x in arguments]
    about = module.code, shapes, torch.__version__, torch.get_num_threads(), machine()
    return hashlib.sha256(repr(about).encode()).hexdigest()[:32]
