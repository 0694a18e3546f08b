"""Speed of SAC: ours beside Stable-Baselines3, SBX and TorchRL, in one interleaved run.

    python benchmarks/sac.py                                  # the peers are in this interpreter
    python benchmarks/sac.py --peers-python path/to/python    # they are in another one

Writes ``benchmarks/results/sac.md``, ``.csv`` and ``.png``.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

from _interleave import Contender, measure, require
from _report import table, write
from contenders.case import Case

CASES = (
    Case(
        slug="update-wide",
        title="Updates, 17 observations, 6 actions, 256x256, batch 256, 2 threads",
        kind="update",
        env="HalfCheetah-v5",
        width=256,
        batch=256,
        threads=2,
    ),
    Case(
        slug="update-narrow",
        title="Updates, 17 observations, 6 actions, 64x64, batch 64, 1 thread",
        kind="update",
        env="HalfCheetah-v5",
        width=64,
        batch=64,
        threads=1,
    ),
    Case(
        slug="loop-halfcheetah",
        title="Training loop, HalfCheetah-v5, 256x256, batch 256, an update a frame, 2 threads",
        kind="loop",
        env="HalfCheetah-v5",
        width=256,
        batch=256,
        threads=2,
    ),
    Case(
        slug="loop-pendulum",
        title="Training loop, Pendulum-v1, 64x64, batch 64, an update a frame, 1 thread",
        kind="loop",
        env="Pendulum-v1",
        width=64,
        batch=64,
        threads=1,
    ),
)


def contenders(peers_python: str) -> dict[str, Contender]:
    ours = Contender(name="torchrl_elegant", module="ours", imports=("torchrl_elegant",))
    torchrl = Contender(name="TorchRL", module="torchrl_sac", imports=("torchrl",))
    sb3 = Contender(
        name="Stable-Baselines3",
        module="sb3",
        python=peers_python,
        imports=("stable_baselines3", "mujoco"),
    )
    sbx = Contender(
        name="SBX (compiled JAX)", module="sbx", python=peers_python, imports=("sbx", "mujoco")
    )
    return {
        "ours": ours,
        "ours-grouped": grouped(ours, "update", "loop"),
        "torchrl": torchrl,
        "torchrl-grouped": grouped(torchrl, "loop"),
        "sb3": sb3,
        "sb3-fused": replace(sb3, name="Stable-Baselines3, fused Adam", module="sb3_fused"),
        "sbx": sbx,
        "sbx-grouped": grouped(sbx, "update", "loop"),
    }


def grouped(contender: Contender, *kinds: str) -> Contender:
    """The same, but with 16 updates in one call, and in the loop after 16 frames."""
    return replace(contender, name=f"{contender.name}, 16 at once", group=16, kinds=kinds)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names, slugs = tuple(contenders(sys.executable)), tuple(case.slug for case in CASES)
    add = parser.add_argument
    add("--peers-python", default=sys.executable, help="interpreter with stable-baselines3 and sbx")
    add("--rounds", type=int, default=5, help="rounds a contender (default: 5)")
    add("--seconds", type=float, default=3.0, help="length of a round, in seconds (default: 3)")
    add("--only", nargs="+", choices=names, default=names, help="these contenders")
    add("--cases", nargs="+", choices=slugs, default=slugs, help="these cases")
    add(
        "--results",
        type=Path,
        default=Path(__file__).resolve().parent / "results",
        help="folder for what is written (default: benchmarks/results)",
    )
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"`--rounds` must be at least 1, got {arguments.rounds}")
    if arguments.seconds <= 0:
        parser.error(f"`--seconds` must be above 0, got {arguments.seconds}")
    return arguments


def command(arguments: argparse.Namespace) -> str:
    """The line that repeats this run, without the paths of this machine."""
    words = ["python benchmarks/sac.py"]
    if arguments.peers_python != sys.executable:
        words.append("--peers-python PYTHON")
    words.append(f"--rounds {arguments.rounds} --seconds {arguments.seconds:g}")
    for name, chosen, every in (
        ("only", arguments.only, contenders("")),
        ("cases", arguments.cases, [case.slug for case in CASES]),
    ):
        if list(chosen) != list(every):
            words.append(f"--{name} {' '.join(chosen)}")
    return " ".join(words)


def main() -> None:
    arguments = parse()
    chosen = [contenders(arguments.peers_python)[name] for name in arguments.only]
    # Before the checks below, which are a load of their own.
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"the machine is busy (load {load:.2f}): its rates will not compare", file=sys.stderr)
    require(chosen)
    results = []
    for case in CASES:
        if case.slug in arguments.cases:
            print(f"\n{case.title}", flush=True)
            timed = measure(chosen, case, rounds=arguments.rounds, seconds=arguments.seconds)
            print(table(timed), flush=True)
            results += timed
    write(
        results,
        arguments.results,
        name="sac",
        title="Speed of SAC",
        command=command(arguments),
        load=load,
    )
    print(f"\nwritten to {arguments.results}")


if __name__ == "__main__":
    main()
