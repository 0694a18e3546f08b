"""The kernel of this package in plain layers, updates and rollouts, which use MKL's products.

    python benchmarks/plain_products.py

Ours is called by an autograd function with as little Python as can be. Both ways run by turns in
one process, on one thread, in the processor's time of that thread. Writes
``benchmarks/results/plain_products.md``.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any
from unittest.mock import patch

import torch
from _interleave import calls_per_second
from _report import markdown, processor, results_parser, write_page
from torch import Tensor
from torch.nn import functional

from torchrl_elegant import PPOConfig, SACConfig, make_env
from torchrl_elegant.cli.training import keep_freed_blocks
from torchrl_elegant.objectives.compiled.kernels import kernels
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.off_policy import row_keys
from torchrl_elegant.trainers.rollout_learner import RolloutLearner

LAYERS = ((16, 64), (16, 256), (64, 64), (256, 256), (1024, 256), (4096, 256), (256, 1024))
perceptron = import_module("torchrl_elegant.functional.perceptron")
mlp = import_module("torchrl_elegant.modules.mlp")
_FORMS: dict[Any, Any] = {}
_ONE = ctypes.c_int64(1)


def own(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """``left @ right + bias``; what the kernel must know of a shape is gathered once."""
    shapes = left.shape, left.stride(), right.shape, right.stride(), bias is None
    if shapes not in _FORMS:
        numbers: list[int] = []
        for each in (left, right, bias):
            whole = None if each is None else each[(None,) * (3 - each.ndim)]
            numbers += [0] * 6 if whole is None else [*whole.shape, *whole.stride()]
        _FORMS[shapes] = (ctypes.c_int64 * len(numbers))(*numbers)
    out = left.new_empty((*left.shape[:-1], right.shape[-1]))
    places = (None if each is None else each.data_ptr() for each in (left, right, bias, out))
    library: Any = kernels()
    library.own_products(*map(ctypes.c_void_p, places), _FORMS[shapes], _ONE)
    return out


class Product(torch.autograd.Function):
    """``left @ right + bias`` of matrices or batches of them."""

    @staticmethod
    def forward(ctx: Any, bias: Tensor, left: Tensor, right: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(left, right)
        ctx.shape = bias.shape
        return own(left, right, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        left, right = ctx.saved_tensors
        wants_bias, wants_left, wants_right = ctx.needs_input_grad
        return (
            grad.sum(-2).view(ctx.shape) if wants_bias else None,
            own(grad, right.transpose(-1, -2)) if wants_left else None,
            own(left.transpose(-1, -2), grad) if wants_right else None,
        )


def product(bias: Tensor, left: Tensor, right: Tensor) -> Tensor:
    needed = torch.is_grad_enabled()
    return Product.apply(bias, left, right) if needed else own(left, right, bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return product(bias, x, weight.t()) if x.ndim == 2 else functional.linear(x, weight, bias)


class _With:
    """A module in which some functions are others."""

    def __init__(self, module: Any, **others: Any) -> None:
        self._module = module
        vars(self).update(others)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


@contextmanager
def own_products() -> Iterator[None]:
    """Let the networks of this package use our kernel."""
    others = _With(torch, addmm=product, baddbmm=product, mm=own)
    with (
        patch.object(perceptron, "torch", others),
        patch.object(mlp, "F", _With(functional, linear=linear)),
    ):
        yield


def by_turns(ways: dict[str, Callable[[], Any]], arguments: argparse.Namespace) -> list[str]:
    """Microseconds of a call of each, MKL's first, and how many times as fast ours is."""
    best = dict.fromkeys(ways, 0.0)
    for _ in range(arguments.rounds):
        for name, way in ways.items():
            rate = calls_per_second(way, arguments.seconds, clock=time.thread_time)
            best[name] = max(best[name], rate)
    mkl, ours = best["MKL"], best["ours"]
    return [f"{1e6 / mkl:.1f}", f"{1e6 / ours:.1f}", f"{ours / mkl:.2f}"]


def layer(rows: int, width: int, arguments: argparse.Namespace) -> list[list[str]]:
    x, grad = torch.randn(rows, width), torch.randn(rows, width)
    weight, bias = torch.randn(width, width), torch.randn(width)
    leaves = [each.clone().requires_grad_() for each in (x, weight, bias)]

    def both(way: Callable[..., Tensor]) -> Any:
        return torch.autograd.grad(way(*leaves), leaves, grad)

    def forward(way: Callable[..., Tensor]) -> Tensor:
        with torch.no_grad():
            return way(x, weight, bias)

    lines = []
    for name, run in (("forward", forward), ("forward and backward", both)):
        ways = {"MKL": partial(run, functional.linear), "ours": partial(run, linear)}
        lines.append([f"layer, {rows} x {width} x {width}, {name}", *by_turns(ways, arguments)])
    return lines


def patched(run: Callable[[], Any]) -> Callable[[], Any]:
    def patched_run() -> Any:
        with own_products():
            return run()

    return patched_run


def update(config: Any, arguments: argparse.Namespace) -> list[str]:
    """A round of sixteen updates of a plain learner."""
    env = make_env("HalfCheetah-v5", num_envs=8)
    torch.manual_seed(0)
    kind = RolloutLearner if config.family == "on_policy" else Learner
    learner, count = kind(config.assemble(env)), 16 * config.batch_size
    steps = env.rollout(-(-count // 8), learner.policy, break_when_any_done=False).detach()
    if isinstance(learner, RolloutLearner):
        rows = learner.rows(steps)[:count]
    else:
        rows = steps.reshape(-1)[:count].select(*row_keys(learner))
    run = partial(learner.learn, rows, config.batch_size)
    name = f"16 updates, {config.name}, {config.num_cells[0]} wide, batch {config.batch_size}"
    return [name, *by_turns({"MKL": run, "ours": patched(run)}, arguments)]


def main() -> None:
    parser = results_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="rounds of each (default: 10)")
    parser.add_argument("--seconds", type=float, default=0.1, help="of a round (default: 0.1)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_blocks()
    lines = [line for rows, width in LAYERS for line in layer(rows, width, arguments)]
    for width in (64, 256):
        for config in (SACConfig, PPOConfig):
            lines.append(update(config(num_cells=(width, width), batch_size=width), arguments))
    for line in lines:
        print(*line, sep="  ")
    about = (
        f"`python benchmarks/plain_products.py`\n\n{processor()}, torch {version('torch')}, one "
        f"thread. The best of {arguments.rounds} rounds by turns in one process."
    )
    head = ["", "MKL, µs", "ours, µs", "MKL / ours"]
    write_page(
        arguments.results, "plain_products", "# Our kernel in plain layers", about,
        markdown(head, lines),
    )  # fmt: skip


if __name__ == "__main__":
    main()
