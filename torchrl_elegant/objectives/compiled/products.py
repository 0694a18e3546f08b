"""Matrix products by the library that is faster for their shape on this machine."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from torchrl_elegant.objectives.compiled.cache import cache_folder, machine, write_cached

logger = logging.getLogger(__name__)

_ATEN = torch.ops.aten
# The time of a product is the least of this many, each at least so long.
_TRIES, _SECONDS = 7, 1e-3
# Part of the time that must be saved: below it, the choice would be one of noise.
_GAIN = 0.1

_LIBRARY = torch.library.Library("torchrl_elegant", "DEF")
_LIBRARY.define("product(Tensor left, Tensor right, Tensor? bias) -> Tensor")


def product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """``left @ right + bias`` by oneDNN, ``[M, N]`` or ``[B, M, N]``; a bias is ``[N]``.

    PyTorch computes products of 32-bit numbers with MKL, which on processors of AMD reaches half
    the rate of oneDNN where matrices are wide. oneDNN is part of PyTorch, without such a name.

    >>> product(torch.ones(2, 3), torch.ones(3, 1)).tolist()
    [[3.0], [3.0]]
    """
    if left.ndim == 2:
        return torch.ops.mkldnn._linear_pointwise(left, right.t(), bias, "none", [], "")
    biases = [None] * len(left) if bias is None else bias[:, 0].unbind()
    parts = zip(left.unbind(), right.unbind(), biases, strict=True)
    return torch.stack([product(*each) for each in parts])


_LIBRARY.impl("product", product, "CPU")


@torch.library.register_fake("torchrl_elegant::product", lib=_LIBRARY)
def _shape_of_product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    return left.new_empty((*left.shape[:-1], right.shape[-1]))


# Each operation as left, right and bias, in the order of its own arguments.
_FORMS: dict[Any, Callable[..., tuple[Any, Any, Any]]] = {
    _ATEN.mm.default: lambda left, right: (left, right, None),
    _ATEN.bmm.default: lambda left, right: (left, right, None),
    _ATEN.addmm.default: lambda bias, left, right: (left, right, bias),
    _ATEN.baddbmm.default: lambda bias, left, right: (left, right, bias),
}


def choose_products(graph: fx.Graph) -> None:
    """Replace the matrix products in ``graph`` for which oneDNN is faster here by ``product``.

    Each shape is measured once on a machine; the outcome is kept beside the compiled functions.
    """
    if not torch.backends.mkldnn.is_available():
        return
    known = _Known(cache_folder() / "products.json")
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in _FORMS and not node.kwargs:
            operands = _FORMS[node.target](*node.args)
            forms = [None if each is None else _form(each) for each in operands]
            if known.is_faster(node.target, forms):
                with graph.inserting_before(node):
                    own = torch.ops.torchrl_elegant.product.default
                    other = graph.call_function(own, operands)
                other.meta = dict(node.meta)
                node.replace_all_uses_with(other)
                graph.erase_node(node)
    known.store()


# Shape, strides, type and device of a tensor.
_Form = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, str]


def _form(node: fx.Node) -> _Form:
    value = node.meta["val"]
    return tuple(value.shape), tuple(value.stride()), value.dtype, value.device.type


class _Known:
    """Products that were measured on this machine, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._about = f"{machine()} torch {torch.__version__}"
        self._known = self._read().get(self._about, {})
        self._is_new = False

    def _read(self) -> dict[str, dict[str, bool]]:
        try:
            pages = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        known = isinstance(pages, dict) and all(isinstance(each, dict) for each in pages.values())
        return pages if known else {}

    def is_faster(self, target: Any, forms: list[_Form | None]) -> bool:
        """True if oneDNN saves time on this product."""
        if any(form is not None and form[2:] != (torch.float32, "cpu") for form in forms):
            return False
        if not _has_usual_bias(forms):
            return False
        threads = torch.get_num_threads()
        shapes = [form and (*form[0], "by", *form[1]) for form in forms]
        name = f"{target} {shapes} {threads} threads"
        if name not in self._known:
            self._known[name], self._is_new = _saves_time(target, forms), True
        return self._known[name] is True

    def store(self) -> None:
        if self._is_new:
            pages = self._read()  # another process may have measured others since
            pages[self._about] = self._known | pages.get(self._about, {})
            write_cached(self._path, json.dumps(pages, indent=1).encode())


def _has_usual_bias(forms: list[_Form | None]) -> bool:
    """True without a bias, or with one for every column, and of every member of a batch."""
    _, right, bias = forms
    if bias is None or right is None:
        return True
    *members, _, columns = right[0]
    return bias[0] in (((*members, 1, columns),) if members else ((columns,), (1, columns)))


def _saves_time(target: Any, forms: list[_Form | None]) -> bool:
    left, right, bias = (None if form is None else _example(form) for form in forms)
    operands = [x for x in (bias, left, right) if x is not None]
    assert left is not None
    assert right is not None
    ways = (partial(product, left, right, bias), partial(target, *operands))
    try:
        counts = [_calls(way) for way in ways]
    except RuntimeError as error:
        logger.debug("oneDNN cannot: %s", error)
        return False
    best = [float("inf")] * 2
    for _ in range(_TRIES):  # by turns: others use the machine, too
        for index, (way, count) in enumerate(zip(ways, counts, strict=True)):
            best[index] = min(best[index], _seconds(way, count))
    return best[0] < (1.0 - _GAIN) * best[1]


def _example(form: _Form) -> Tensor:
    shape, stride, *_ = form
    size = 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
    # Not random: the global stream is the run's.
    return torch.linspace(-1.0, 1.0, size).as_strided(shape, stride)


def _calls(run: Callable[[], Tensor]) -> int:
    """Number of calls that take long enough to be timed."""
    run()
    count = 1
    while _seconds(run, count) * count < _SECONDS:
        count *= 2
    return count


def _seconds(run: Callable[[], Tensor], count: int) -> float:
    """Seconds of one of ``count`` calls."""
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count
