"""Matrix products of an update: MKL, which PyTorch uses, oneDNN, and the kernel of this package.

    python benchmarks/products.py --threads 1

MKL's and ours are compiled into a function of many products, as in a compiled update. PyTorch's
compiler takes oneDNN only for weights that never change, so its products are called one by one, at
a cost of about a microsecond each. All run by turns in one process. Writes
``benchmarks/results/products_<threads>.md``.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import torch
from _interleave import calls_per_second
from _report import markdown, processor, results_parser, write_page

from torchrl_elegant.objectives.compiled import compiler
from torchrl_elegant.objectives.compiled.kernels import kernels
from torchrl_elegant.objectives.compiled.products import OWN_PRODUCT
from torchrl_elegant.objectives.compiled.recording import record, replace_node

# Rows, depth and columns: of the first, a middle and the last layer, and of gradients.
SIZES = (
    *((64, 17, 64), (64, 64, 64), (64, 64, 12), (64, 4, 64)),
    *((128, 128, 128), (256, 17, 256), (256, 256, 256), (256, 256, 12)),
    *((256, 400, 300), (256, 512, 512), (1024, 256, 256), (1024, 1024, 1024)),
)
# Layouts: a layer, the gradient of its input, the gradient of its weight.
FORMS = {"layer": (False, True), "input": (False, False), "weight": (True, False)}


def exchange(graph: torch.fx.Graph, operation: Any) -> None:
    """Put ``operation`` in the place of all products."""
    for node in list(graph.nodes):
        if node.target is torch.ops.aten.mm.default:
            with graph.inserting_before(node):
                other = graph.call_function(operation, (*node.args, None))
            replace_node(graph, node, other)


def one_dnn(left: torch.Tensor, right: torch.Tensor, bias: None) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(left, right.t(), bias, "none", [], "")


def way(name: str, products: Any, given: list[torch.Tensor]) -> Callable[[], Any]:
    recording = record(products, given)
    if name == "oneDNN":
        exchange(recording.graph.graph, one_dnn)
        recording.graph.recompile()
        return torch.no_grad()(partial(recording.graph, *given))
    if name == "ours":
        exchange(recording.graph.graph, OWN_PRODUCT)
    compiler.choose_products = lambda graph: None
    return partial(compiler.compile_recording(recording, given), given)


WAYS = ("MKL", "oneDNN", "ours")


def matrix(rows: int, columns: int, turned: bool) -> torch.Tensor:
    return torch.randn(columns, rows).t() if turned else torch.randn(rows, columns)


def measure(size: tuple[int, int, int], form: str, arguments: argparse.Namespace) -> list[str]:
    rows, depth, width = size
    operations = 2 * rows * depth * width
    count = max(2, min(32, 50_000_000 // operations))
    left = [matrix(rows, depth, FORMS[form][0]) for _ in range(count)]
    right = [matrix(depth, width, FORMS[form][1]) for _ in range(count)]

    def products(*given: torch.Tensor) -> list[torch.Tensor]:
        return [a @ b for a, b in zip(given[:count], given[count:], strict=True)]

    runs = {name: way(name, products, [*left, *right]) for name in WAYS}
    expected = left[0].double() @ right[0].double()
    for run in runs.values():
        torch.testing.assert_close(run()[0].double(), expected, rtol=1e-3, atol=1e-3)
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(arguments.rounds):
        for name, each in runs.items():
            calls = calls_per_second(each, arguments.seconds)
            best[name] = min(best[name], 1.0 / (calls * count))
    found = {name: operations / seconds / 1e9 for name, seconds in best.items()}
    ratio = found["ours"] / max(found["MKL"], found["oneDNN"])
    rates = [f"{found[name]:.0f}" for name in WAYS]
    shape = " x ".join(map(str, size))
    return [f"{shape}, {form}", *rates, f"{ratio:.2f}", f"{1e6 * best['ours']:.2f}"]


def main() -> None:
    parser = results_parser(__doc__)
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch (default: 1)")
    parser.add_argument("--rounds", type=int, default=6, help="rounds of each (default: 6)")
    parser.add_argument("--seconds", type=float, default=0.05, help="of a round (default: 0.05)")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    head = ["rows x depth x columns", *WAYS, "ours / the better", "µs, ours"]
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        kernels()
        for size in SIZES:
            for form in FORMS:
                lines.append(measure(size, form, arguments))
                print(*lines[-1], sep="  ", flush=True)
    about = (
        f"`python benchmarks/products.py --threads {arguments.threads}`\n\n{processor()}, "
        f"torch {version('torch')}, {arguments.threads} thread(s). Billions of operations a "
        f"second, the best of {arguments.rounds} rounds by turns in one process. MKL's and ours "
        "are called in a compiled function, oneDNN's one by one."
    )
    title, name = (
        f"# Matrix products, {arguments.threads} thread(s)",
        f"products_{arguments.threads}",
    )
    write_page(arguments.results, name, title, about, markdown(head, lines))


if __name__ == "__main__":
    main()
