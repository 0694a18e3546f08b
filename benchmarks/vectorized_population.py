"""Throughput of a vectorized population beside the same members one after another.

    python benchmarks/vectorized_population.py

All contenders run in one process by turns, on one thread, and are timed by the processor's time of
that thread. Writes ``benchmarks/results/vectorized_population.md``; with ``--peers-python`` PPO
beside a population in JAX, and ``vectorized_population_jax.md``.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from _report import markdown, processor, results_parser, write_page

from torchrl_elegant import PPOConfig, SACConfig
from torchrl_elegant.algorithms import AlgorithmConfig
from torchrl_elegant.runs.population import VectorizedPopulation
from torchrl_elegant.runs.trial import Trial

ENV = "elegant/chasing"
FOREVER = 1_000_000_000


@dataclass(frozen=True)
class Case:
    """Members of one kind: what they are, their environments, and the frames of one turn."""

    title: str
    config: AlgorithmConfig
    num_envs: int
    frames_per_batch: int
    frames: int

    def run(self) -> dict[str, Any]:
        sizes = {"num_envs": self.num_envs, "frames_per_batch": self.frames_per_batch}
        return {**sizes, "total_frames": FOREVER // self.num_envs * self.num_envs}


SMALL_SAC = SACConfig(num_cells=(64, 64), batch_size=64, warmup=256, buffer_size=100_000)
CASES = {
    "ppo-1": Case("PPO, defaults: 1 environment each", PPOConfig(), 1, 2048, 2048),
    "ppo-8": Case("PPO, defaults but for 8 environments each", PPOConfig(), 8, 2048, 2048),
    "ppo-64": Case(
        "PPO, 64 environments each, batches of 512, 4 epochs",
        PPOConfig(batch_size=512, epochs=4),
        64,
        4096,
        4096,
    ),
    "sac-1": Case("SAC, 64x64, batches of 64, 1 environment each", SMALL_SAC, 1, 16, 256),
    "sac-8": Case("SAC, 64x64, batches of 64, 8 environments each", SMALL_SAC, 8, 16, 256),
}


def alone(case: Case, compile: bool) -> Callable[[], Any]:
    trial = Trial(replace(case.config, compile=compile), ENV, **case.run())
    return lambda: trial.train(frames=case.frames)


def together(case: Case, count: int, compile: bool) -> Callable[[], Any]:
    configs = [replace(case.config, compile=compile)] * count
    population = VectorizedPopulation(configs, ENV, **case.run())
    return lambda: population.train(frames=case.frames)


def in_jax(case: Case, count: int, arguments: argparse.Namespace) -> float:
    """Frames a second of a population in JAX, in a process of its own."""
    script = Path(__file__).with_name("contenders") / "population_jax.py"
    words = (count, case.num_envs, case.frames_per_batch, arguments.rounds)
    command = [arguments.peers_python, str(script), *map(str, words)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(case: Case, arguments: argparse.Namespace) -> list[list[str]]:
    """Frames a second of all members, the best of the rounds, and how much that is."""
    ways: dict[tuple[int, bool], Callable[[], Any]] = {}
    for compile in (False, True):
        ways[0, compile] = alone(case, compile)
        for count in arguments.members:
            ways[count, compile] = together(case, count, compile)
    least = dict.fromkeys(ways, float("inf"))
    for way in ways.values():
        way()  # records, compiles, fills buffers
        way()
    gc.collect()
    for _ in range(arguments.rounds):
        for name, way in ways.items():
            start = time.thread_time()
            way()
            least[name] = min(least[name], time.thread_time() - start)
    rows = []
    for (count, compile), seconds in least.items():
        rate = max(count, 1) * case.frames / seconds
        ratios = [rate * least[0, other] / case.frames for other in (False, True)]
        name = f"{count} together" if count else "one after another"
        name += ", compiled" * compile
        rows.append([name, f"{rate:,.0f}", *(f"{ratio:.1f}" for ratio in ratios)])
        if arguments.peers_python:
            peer = in_jax(case, count, arguments) if count and compile else None
            rows[-1] += ["", ""] if peer is None else [f"{peer:,.0f}", f"{rate / peer:.2f}"]
    return rows


def main() -> None:
    parser = results_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each (default: 5)")
    parser.add_argument("--members", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--peers-python", help="interpreter with jax and optax")
    arguments = parser.parse_args()
    if arguments.peers_python:
        arguments.cases = [name for name in arguments.cases if name in ("ppo-1", "ppo-8")]
    torch.set_num_threads(1)
    head = ["", "frames/s of all", "times one after another", "times that, compiled"]
    head += ["JAX, frames/s", "times JAX"] if arguments.peers_python else []
    tables = []
    for name in arguments.cases:
        tables.append(f"## {CASES[name].title}")
        tables.append(markdown(head, measure(CASES[name], arguments)))
        print(*tables[-2:], sep="\n\n", flush=True)
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "torchrl", "tensordict"))
    about = (
        f"`python benchmarks/vectorized_population.py --rounds {arguments.rounds}`\n\n"
        f"{processor()}, {os.cpu_count()} cores; {packages}. Training on {ENV}: collection and "
        "learning, no evaluation. *One after another* is the loop of `train` for one member: "
        "several take as many times as long. *Compiled* is `compile=true`. The best of "
        f"{arguments.rounds} rounds each, by turns in one process, in the processor's time of its "
        "one thread; recording and compiling are left out."
    )
    page = "vectorized_population"
    if arguments.peers_python:
        page += "_jax"
        about = about.replace("`\n", " --peers-python ...`\n", 1) + (
            " *JAX*: the same environment, networks and settings as one function of a member, "
            "vmapped and compiled as in PureJaxRL (`contenders/population_jax.py`), timed alike in "
            "a process of its own straight afterwards."
        )
    title = "# Throughput of a vectorized population"
    write_page(arguments.results, page, title, about, *tables)


if __name__ == "__main__":
    main()
