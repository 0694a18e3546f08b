"""Steps of PettingZoo's environments: ours beside TorchRL's wrapper in a `SerialEnv`.

    python benchmarks/pettingzoo_steps.py

Random actions, one process and by turns, round after round; the table holds medians. The bound is
the rate of the simulators alone. Writes ``benchmarks/results/pettingzoo_steps.md``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import torch
from _report import processor
from torchrl.envs import EnvBase, SerialEnv
from torchrl.envs.libs.pettingzoo import PettingZooWrapper

from torchrl_elegant import make_env

ENVS, STEPS = 8, 25
TASKS = ("simple_spread_v3", "simple_tag_v3", "simple_speaker_listener_v4")


def raw(task: str) -> Callable[[], None]:
    """Steps of the simulators alone, with one action for each agent."""
    copies = [import_module(f"mpe2.{task}").parallel_env() for _ in range(ENVS)]

    def steps() -> None:
        for copy in copies:
            copy.reset()
            actions = {agent: copy.action_space(agent).sample() for agent in copy.agents}
            for _ in range(STEPS):
                copy.step(actions)

    return steps


def wrapped(task: str) -> PettingZooWrapper:
    return PettingZooWrapper(import_module(f"mpe2.{task}").parallel_env())


def rolled(env: EnvBase) -> Callable[[], object]:
    return partial(env.rollout, STEPS, break_when_any_done=False)


def rates(task: str, rounds: int) -> list[float]:
    """Median steps a second of ours, of TorchRL's, and of the simulators."""
    ours = rolled(make_env(f"pettingzoo/mpe2:{task}", ENVS, seed=0))
    theirs = rolled(SerialEnv(ENVS, partial(wrapped, task)))
    ways = ours, theirs, raw(task)
    seconds: list[list[float]] = [[] for _ in ways]
    for number in range(rounds + 1):
        for way, times in zip(ways, seconds, strict=True):
            start = time.perf_counter()
            way()
            if number:
                times.append(time.perf_counter() - start)
    return [ENVS * STEPS / statistics.median(times) for times in seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="rollouts of each way")
    path = Path(__file__).parent / "results" / "pettingzoo_steps.md"
    parser.add_argument("--out", type=Path, default=path)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    lines = [
        "# Steps of PettingZoo's environments",
        "",
        f"Written by `python benchmarks/pettingzoo_steps.py`: {ENVS} copies in one process, one "
        f"thread, random actions, medians of {arguments.rounds} rollouts of {STEPS} steps by turns."
        f" {processor()}, load {os.getloadavg()[0]:.1f}; TorchRL {version('torchrl')}, PettingZoo "
        f"{version('pettingzoo')}.",
        "",
        "| task of mpe2 | ours, steps/s | TorchRL's, steps/s | ratio | simulators alone, steps/s |",
        "|---|---|---|---|---|",
    ]
    for task in TASKS:
        ours, theirs, bound = rates(task, arguments.rounds)
        lines.append(
            f"| {task} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.1f} | {bound:,.0f} |"
        )
        print(lines[-1], flush=True)
    arguments.out.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
