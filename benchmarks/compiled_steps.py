"""A compiled update of SAC: what each step on the way to it brings.

    python benchmarks/compiled_steps.py

All variants run in one process by turns, on one thread, and are timed by the processor's time of
that thread. Writes ``benchmarks/results/compiled_steps.md``.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

import torch
from _interleave import calls_per_second
from _report import markdown, processor, results_parser, write_page
from torch._inductor import standalone_compile
from torch._inductor.runtime.cache_dir_utils import temporary_cache_dir

from torchrl_elegant import SACConfig, make_env
from torchrl_elegant.objectives import compiled
from torchrl_elegant.objectives.compiled.compiler import compile_recording
from torchrl_elegant.objectives.compiled.kernels import kernels
from torchrl_elegant.objectives.compiled.recording import Recording
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.off_policy import row_keys

SIZES = {"64x64, batch 64": (64, 64), "256x256, batch 256": (256, 256)}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A way to run a recorded update; without ``options`` its operations run one by one.

    ``kernels`` of this package take the place of products, or of products and of Adam's step.
    ``round`` updates are checked at once.
    """

    name: str
    options: dict[str, Any] | None = None
    kernels: tuple[str, ...] = ()
    round: int = 1

    def run_of(self, recording: Recording, given: list[torch.Tensor]) -> Callable[..., Any]:
        if "products" in self.kernels:
            return compile_recording(recording, given)
        graph: Any = recording.graph
        if self.options is not None:
            config: Any = {"config_patches": self.options}
            arguments: list[Any] = recording.arguments(given)
            folder = tempfile.TemporaryDirectory()
            with torch.no_grad(), folder as path, temporary_cache_dir(path):
                graph = standalone_compile(recording.graph, arguments, options=config)

        @torch.no_grad()
        def run(given: list[torch.Tensor]) -> Any:
            return graph(*recording.arguments(given))

        return run


WRAPPED = {"cpp_wrapper": True, "cpp.threads": 1}
TUNED = {"max_autotune_gemm": True, "max_autotune_gemm_backends": "ATEN,CPP"}
VARIANTS = (
    Variant(name="recorded, each operation by itself"),
    Variant(name="compiled, kernels called from Python", options={}),
    Variant(name="compiled, with inductor's own products where they win", options=TUNED),
    Variant(name="compiled, kernels called from C++", options=WRAPPED),
    Variant(name="the same, products by our kernel", kernels=("products",)),
    Variant(name="the same, Adam by our kernel", kernels=("products", "adam")),
    Variant(
        name="the same, 16 updates checked at once, as `compile=true`",
        kernels=("products", "adam"),
        round=16,
    ),
)


def learner_of(config: SACConfig, env: Any, variant: Variant | None) -> Learner:
    torch.manual_seed(0)
    if variant is None:
        return Learner(config.assemble(env))
    compiled.loss.compile_recording = variant.run_of  # type: ignore[assignment]
    learner = Learner(config.assemble(env), compile=True)
    if "adam" not in variant.kernels:
        learner.optimizer.defaults["compiled"] = False
    return learner


def learn(learner: Learner, batch: Any, rows: int) -> None:
    for _ in learner.learn(batch, rows):
        pass


def measure(width: int, rows: int, arguments: argparse.Namespace) -> list[list[str]]:
    env = make_env("HalfCheetah-v5")
    config = SACConfig(num_cells=(width, width), batch_size=rows)
    updates: dict[str, Callable[[], Any]] = {}
    seconds: dict[str, float] = {}
    counts: dict[str, int] = {}
    for variant in (None, *VARIANTS):
        folder = tempfile.TemporaryDirectory()
        os.environ["XDG_CACHE_HOME"] = folder.name  # each variant compiles for itself
        kernels.cache_clear()
        start = time.perf_counter()
        learner = learner_of(config, env, variant)
        assembled = time.perf_counter() - start
        count = 1 if variant is None else variant.round
        batch = env.rollout(rows * count, break_when_any_done=False).reshape(-1)
        update = partial(learn, learner, batch.select(*row_keys(learner)), rows)
        start = time.perf_counter() - assembled
        update()
        name = "plain" if variant is None else variant.name
        updates[name], seconds[name] = update, time.perf_counter() - start
        counts[name] = count
    rate = partial(calls_per_second, seconds=arguments.seconds, clock=time.thread_time)
    rates = dict.fromkeys(updates, 0.0)
    for _ in range(arguments.rounds):
        for name, update in updates.items():
            rates[name] = max(rates[name], counts[name] * rate(update))
    return [
        [name, f"{value:.0f}", f"{value / rates['plain']:.2f}", f"{seconds[name]:.1f}"]
        for name, value in rates.items()
    ]


def main() -> None:
    parser = results_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=8, help="rounds of each (default: 8)")
    parser.add_argument("--seconds", type=float, default=0.4, help="of a round (default: 0.4)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    head = ["", "updates/s, best", "times plain", "seconds of the first update"]
    tables = []
    for title, (width, rows) in SIZES.items():
        tables.append(f"## SAC, {title}, HalfCheetah-v5, one thread")
        tables.append(markdown(head, measure(width, rows, arguments)))
        print(*tables[-2:], sep="\n\n", flush=True)
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "torchrl", "tensordict"))
    about = (
        f"`python benchmarks/compiled_steps.py --rounds {arguments.rounds} --seconds "
        f"{arguments.seconds:g}`\n\n{processor()}, {os.cpu_count()} cores; {packages}. The best of "
        f"{arguments.rounds} rounds each, by turns in one process, in the processor's time of the "
        "thread. The first update compiles; the very first of a machine also compiles headers."
    )
    title = "# The steps to a compiled update"
    write_page(arguments.results, "compiled_steps", title, about, *tables)


if __name__ == "__main__":
    main()
