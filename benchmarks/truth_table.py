"""Truth table of simulators: one schedule of falls and time limits, ours beside TorchRL's.

    python benchmarks/truth_table.py --play gymnasium vmas
    path/to/mjlab/bin/python benchmarks/truth_table.py --play mjlab
    python benchmarks/truth_table.py

`--play` plays the schedule in simulators that this interpreter has, each into
``benchmarks/results/truth/``; those that collide with the pins of this package have environments of
their own (``benchmarks/requirements-*.txt``). Without words it writes
``benchmarks/results/truth_table.md`` from all that was played. ``contenders/truth/schedule.py``
says what is played and how it is judged.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import platform
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
PLAYED = HERE / "results" / "truth"

# Module, function and distribution of each simulator.
SIMULATORS = {
    "gymnasium": ("here", "gymnasium_rows", "gymnasium"),
    "vmas": ("here", "vmas_rows", "vmas"),
    "vectask": ("on_vectask", "vectask_rows", "torchrl"),
    "mjlab": ("on_mjlab", "mjlab_rows", "mjlab"),
    "isaaclab": ("on_isaac_lab", "isaac_lab_rows", "isaaclab"),
    "genesis": ("on_genesis", "genesis_rows", "genesis-world"),
    "brax": ("on_jax", "brax_rows", "brax"),
    "playground": ("on_jax", "playground_rows", "playground"),
    "envpool": ("on_envpool", "envpool_rows", "envpool"),
}
# Simulators that are no package.
NAMES = {"vectask": "VecTask, scripted"}


def play(name: str) -> None:
    """Plays the schedule in one simulator and keeps what came out."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    module, function, package = SIMULATORS[name]
    rows = getattr(importlib.import_module(f"contenders.truth.{module}"), function)()
    version = importlib.metadata.version(package)
    told = {"version": f"{package} {version}", "python": platform.python_version(), "rows": rows}
    PLAYED.mkdir(parents=True, exist_ok=True)
    (PLAYED / f"{name}.json").write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told, indent=1))


def line(name: str, who: str, row: dict[str, Any]) -> str:
    """One row of the table."""
    from contenders.truth.schedule import PARTS

    if "failed" in row:
        return f"| {name} | {who} | " + " | ".join("-" * len(PARTS)) + f" | {row['failed']} |"
    shares = " | ".join(f"{100 * row[part]:.0f}" for part in PARTS)
    ends = ", ".join(f"{row[key]} {key}" for key in ("falls", "time limits", "both"))
    return f"| {name} | {who} | {shares} | {ends} |"


def table() -> str:
    """The page, from what was played."""
    from contenders.truth.schedule import GAMMA, LIMIT, PARTS, ROWS, STEPS, rsl_rl_share

    words = [
        "# Truth table of simulators",
        "",
        f"Share of {ROWS} x {STEPS} collected transitions that are right, in %. A fall terminates,",
        f"a time limit (step {LIMIT}) truncates, and some episodes end by both at once. The value",
        f"target is r + {GAMMA} V(next observation), without V after a fall. What ended is counted",
        "from the actions and observations in the batch.",
        "",
        "| | | " + " | ".join(PARTS) + " | ended |",
        "|" + "---|" * (len(PARTS) + 3),
    ]
    for name in SIMULATORS:
        kept = PLAYED / f"{name}.json"
        if not kept.exists():
            words.append(f"| {name} | not played |" + " |" * (len(PARTS) + 1))
            continue
        told = json.loads(kept.read_text())
        for who, row in told["rows"].items():
            words.append(line(NAMES.get(name, told["version"]), who, row))
    share = f"{100 * rsl_rl_share():.0f}"
    rule = "rule of rsl_rl: r + gamma V(s_t) at a time-out"
    words.append(f"| true episodes | {rule} | | | | | {share} | |")
    words += [
        "",
        "`ours` is the adapter in our `SyncCollector`; `torchrl` is TorchRL's wrapper in its",
        "`Collector`. mjlab runs its Cartpole, Isaac Lab a falling cube on Newton, Genesis a box",
        "that glides, so that its place tells the steps. Brax, Playground, Gymnasium and VMAS run",
        "a task without physics behind the simulator's own interface. envpool runs CartPole, whose",
        "next state follows from the equations. VecTask (Isaac Gym's interface) is a scripted",
        "task in each style of resets: it tells any end at the limit as a time-out, so nothing is",
        "both; in the style same_step it does not show the last observation.",
        "",
        "    python benchmarks/truth_table.py",
        "",
    ]
    return "\n".join(words)


def main() -> None:
    """Plays, or writes the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--play", nargs="+", choices=sorted(SIMULATORS), default=[])
    words = parser.parse_args()
    for name in words.play:
        play(name)
    if not words.play:
        (HERE / "results" / "truth_table.md").write_text(table())
        print(table())


if __name__ == "__main__":
    main()
