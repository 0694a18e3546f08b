"""Unrolling a memory over sequences: this package's GRU, PyTorch's, and TorchRL's GRUModule.

    python benchmarks/recurrent.py

A call goes forward and back over a batch of sequences. With resets, an episode begins at about one
step in twenty; PyTorch's GRU alone has no resets. All run by turns in one process. Writes
``benchmarks/results/recurrent.md``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import version
from statistics import median

import torch
from _interleave import calls_per_second
from _report import markdown, processor, results_parser, write_page
from tensordict import TensorDict
from torch import nn
from torchrl.modules import GRUModule, set_recurrent_mode

from torchrl_elegant.modules import GRU

# Sequences, steps, features, hidden size.
SIZES = ((16, 16, 8, 64), (32, 40, 8, 64), (8, 128, 8, 64), (64, 16, 32, 128), (256, 16, 32, 128))


def ways(size: tuple[int, int, int, int], resets: bool) -> dict[str, Callable[[], object]]:
    """A call of each contender: forward, and back to its parameters."""
    batch, steps, features, hidden = size
    x, state = torch.randn(batch, steps, features), torch.zeros(batch, hidden)
    begins = torch.rand(batch, steps) < 0.05 if resets else torch.zeros(batch, steps).bool()
    ours = GRU(in_features=features, hidden_size=hidden)
    theirs = nn.GRU(features, hidden, batch_first=True)
    keys = {"in_keys": ["x", "state", "is_init"], "out_keys": ["out", ("next", "state")]}
    module = GRUModule(gru=theirs, **keys)
    for name, param in ours.cell.named_parameters():
        getattr(theirs, f"{name}_l0").data.copy_(param.data)
    states = state.view(batch, 1, 1, hidden).expand(batch, steps, 1, hidden)
    flags = begins.unsqueeze(-1)
    data = TensorDict({"x": x, "state": states, "is_init": flags}, [batch, steps])

    def of_torchrl() -> torch.Tensor:
        with set_recurrent_mode(True):
            return module(data.copy())["out"]

    forward = {
        "this package": lambda: ours.unroll(x, state, begins if resets else None),
        "TorchRL's GRUModule": of_torchrl,
    }
    if not resets:
        forward["torch.nn.GRU"] = lambda: theirs(x, state.unsqueeze(0))[0]
    expected = forward["this package"]()
    for run in forward.values():
        torch.testing.assert_close(run(), expected, rtol=1e-4, atol=1e-5)
    return {name: lambda run=run: run().sum().backward() for name, run in forward.items()}


def measure(
    size: tuple[int, int, int, int], resets: bool, rounds: int, seconds: float
) -> list[str]:
    each, rates = ways(size, resets), dict[str, list[float]]()
    for _ in range(int(rounds)):
        for name, run in each.items():
            rates.setdefault(name, []).append(calls_per_second(run, seconds, time.process_time))
    found = {name: median(values) for name, values in rates.items()}
    ours = found["this package"]
    names = ("torch.nn.GRU", "TorchRL's GRUModule")
    ratios = [f"{ours / found[name]:.2f}" if name in found else "-" for name in names]
    shape = " x ".join(map(str, size))
    return [f"{shape}, {'resets' if resets else 'no resets'}", f"{1e3 / ours:.2f}", *ratios]


def main() -> None:
    parser = results_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each (default: 9)")
    parser.add_argument("--seconds", type=float, default=0.3, help="of a round (default: 0.3)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    head = [
        "sequences x steps x features x hidden",
        "ms, ours",
        "ours / nn.GRU",
        "ours / GRUModule",
    ]
    lines = []
    for size in SIZES:
        for resets in (False, True):
            lines.append(measure(size, resets, arguments.rounds, arguments.seconds))
            print(*lines[-1], sep="  ", flush=True)
    about = (
        f"`python benchmarks/recurrent.py`\n\n{processor()}, torch {version('torch')}, torchrl "
        f"{version('torchrl')}, 1 thread. Forward and back, time of the processor; medians of "
        f"{arguments.rounds} rounds by turns in one process; ratios of rates, above 1 where this "
        "package is faster."
    )
    title = "# Unrolling a memory over sequences"
    write_page(arguments.results, "recurrent", title, about, markdown(head, lines))


if __name__ == "__main__":
    main()
