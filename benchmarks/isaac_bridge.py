"""Bridge to simulators under another interpreter: is it exact, and how long does a step take?

    python benchmarks/isaac_bridge.py
    python benchmarks/isaac_bridge.py --python python3.7 --python python3.8

Each interpreter needs NumPy and torch of its own. First a scripted simulator plays in each of the
four styles under it, and every transition is compared with those in this process. Then a task that
computes nothing is stepped here and through the bridge, by turns. Writes
``benchmarks/results/isaac_bridge.md``.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from _report import markdown, processor, results_parser, write_page
from tensordict import TensorDictBase

from torchrl_elegant.envs import BridgedTask, LocalTask, VecTaskEnv
from torchrl_elegant.envs.batched.vectask_server import STYLES

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
SIZES = ((4096, 60), (16384, 60))
STEPS, PLAYED = 200, 60


def told_of(python: str) -> str:
    """Versions of an interpreter and of its torch."""
    code = "import sys, torch; print('Python', sys.version.split()[0], 'torch', torch.__version__)"
    return subprocess.run(
        [python, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def played(env: VecTaskEnv) -> TensorDictBase:
    """Steps with the same random actions each time."""
    generator, data, steps = torch.Generator().manual_seed(0), env.reset(), []
    for _ in range(PLAYED):
        data.set("action", torch.rand(env.num_envs, 1, generator=generator) * 2.4 - 1.2)
        step, data = env.step_and_maybe_reset(data)
        steps.append(step.clone())
    env.close()
    return torch.stack(steps, -1)


def is_exact(python: str, style: str) -> bool:
    """True if all entries of all transitions are those of the task in this process."""
    from scripted_vectask import ScriptedTask

    arguments = {"resets": style, "num_envs": 64, "num_states": 3}
    make = "scripted_vectask:ScriptedTask"
    there = BridgedTask(python, make, arguments, resets=style, path=[str(TESTS)])
    here = LocalTask(ScriptedTask(**arguments), resets=style)
    ours, theirs = played(VecTaskEnv(here)), played(VecTaskEnv(there))
    values = ours.items(True, True)
    return all(torch.equal(value, theirs.get(key)) for key, value in values)


def microseconds(source: LocalTask | BridgedTask) -> float:
    """Median time of a step."""
    sizes, times = source.sizes, []
    actions = torch.rand(sizes["num_envs"], sizes["num_acts"])
    marks = torch.zeros(sizes["num_envs"], dtype=torch.bool)
    for _ in range(STEPS):
        start = time.perf_counter()
        source.step(actions, marks)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def timed(pythons: list[str], rows: int, width: int, rounds: int) -> list[list[str]]:
    """Cells of each interpreter: a step here and one through the bridge, by turns."""
    from _still_task import StillTask

    arguments = {"num_envs": rows, "num_obs": width}
    style, make = "post_physics", "_still_task:StillTask"
    here = LocalTask(StillTask(**arguments), resets=style)
    bridges = [BridgedTask(p, make, arguments, resets=style, path=[str(HERE)]) for p in pythons]
    pairs: list[list[tuple[float, float]]] = [[] for _ in pythons]
    for _ in range(rounds):
        for found, there in zip(pairs, bridges, strict=True):
            found.append((microseconds(here), microseconds(there)))
    for there in bridges:
        there.close()
    return [[f"{rows} x {width}", *cells(found)] for found in pairs]


def cells(pairs: list[tuple[float, float]]) -> list[str]:
    """Median, lowest and highest of both columns and of their difference."""
    columns = [*zip(*pairs, strict=True), [far - near for near, far in pairs]]
    return [f"{statistics.median(c):.0f} ({min(c):.0f} to {max(c):.0f})" for c in columns]


def main() -> None:
    parser = results_parser(__doc__)
    parser.add_argument("--python", action="append", help="interpreter of the server")
    parser.add_argument("--rounds", type=int, default=11, help="rounds of each (default: 11)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sys.path.append(str(TESTS))
    pythons, lines = arguments.python or [sys.executable], []
    exact = [f"{sum(is_exact(python, style) for style in STYLES)} of 4" for python in pythons]
    for rows, width in SIZES:
        found = timed(pythons, rows, width, arguments.rounds)
        for python, same, measured in zip(pythons, exact, found, strict=True):
            lines.append([told_of(python), same, *measured])
            print(*lines[-1], sep=", ", flush=True)
    head = ["server", "styles that are exact", "rows x observation"]
    head += ["step here, us", "through the bridge, us", "difference, us"]
    about = (
        f"`python benchmarks/isaac_bridge.py`, with `--python` for each server\n\n{processor()}, "
        f"{os.cpu_count()} cores, of which other work took a load "
        f"of {os.getloadavg()[0]:.1f} (niceness here {os.nice(0)}). Here: Python "
        f"{sys.version.split()[0]}, torch {torch.__version__}. The task computes nothing; either "
        f"way all tensors of a step are copied for the caller. Medians over {STEPS} steps; of "
        f"{arguments.rounds} rounds the median, the lowest and the highest. "
        "The lowest is nearest to a machine without other work."
    )
    write_page(
        arguments.results, "isaac_bridge", "# Bridge to a VecTask", about, markdown(head, lines)
    )


if __name__ == "__main__":
    main()
