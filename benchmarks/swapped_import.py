"""Gain of a user of TorchRL who imports the loss from here, and changes nothing else.

    python benchmarks/swapped_import.py

The script is TorchRL's: its networks, buffer, `torch.optim.Adam`, `SoftUpdate` and, in the loop,
its `Collector`. Only `from torchrl.objectives import SACLoss` is another line. Beside it stand the
same with fused Adam, the same with `CompiledLoss(loss).backward_terms(batch)` in place of the
loss's `backward()`, and the steps of optimizers and targets without any loss. All run in one
process by turns. Writes ``benchmarks/results/swapped_import.md``.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version

import torch
from _interleave import Result
from _off_policy import NARROW, WIDE
from _report import Ratio, processor, ratio_table, results_parser, table, write_page
from contenders.case import OffPolicyCase
from contenders.off_policy import torchrl

NAMES = {"sac": "SAC", "td3": "TD3"}
SIZES = {
    "wide": (WIDE, "256x256, batch 256, 2 threads"),
    "narrow": (NARROW, "64x64, batch 64, 1 thread"),
}
CASES = tuple(
    OffPolicyCase(
        slug=f"{algorithm}-{kind}-{size}",
        title=f"{name}, {title}, HalfCheetah-v5, {about}",
        kind=kind,
        algorithm=algorithm,
        env="HalfCheetah-v5",
        group=64 if kind == "loop" else 1,
        **options,
    )
    for algorithm, name in NAMES.items()
    for kind, title in (("update", "updates"), ("loop", "training loop"))
    for size, (options, about) in SIZES.items()
)


@dataclass(frozen=True, kw_only=True)
class Script:
    """TorchRL's script with losses from one package and one Adam, in cases of ``kinds``."""

    name: str
    losses: str
    plain: bool = True
    kinds: tuple[str, ...] = ("update",)
    compiled: bool = False

    def takes(self, case: OffPolicyCase) -> bool:
        # TorchRL's script of TD3 asks its loss for one term after the other.
        return case.kind in self.kinds and not (self.compiled and case.algorithm == "td3")

    def make(self, case: OffPolicyCase) -> Callable[[int], int]:
        about = {"losses": self.losses, "plain": self.plain, "compiled": self.compiled}
        return torchrl.make(replace(case, **about))


BOTH = ("update", "loop")
SCRIPTS = (
    Script(name="TorchRL", losses="torchrl", kinds=BOTH),
    Script(name="the loss imported from here", losses="torchrl_elegant", kinds=BOTH),
    Script(name="TorchRL's loss, compiled from here", losses="torchrl", kinds=BOTH, compiled=True),
    Script(name="ours, compiled", losses="torchrl_elegant", kinds=BOTH, compiled=True),
    Script(name="TorchRL, fused Adam", losses="torchrl", plain=False),
    Script(name="both", losses="torchrl_elegant", plain=False),
    Script(name="no loss: optimizers and targets", losses=""),
    Script(name="no loss: fused optimizers and targets", losses="", plain=False),
)
RATIOS = (
    Ratio(of="the loss imported from here", to=("TorchRL",), at_least=1.3),
    Ratio(of="TorchRL's loss, compiled from here", to=("TorchRL",)),
    Ratio(of="ours, compiled", to=("TorchRL",)),
    Ratio(of="both", to=("TorchRL, fused Adam",)),
)


def measure(case: OffPolicyCase, *, rounds: int, seconds: float) -> list[Result]:
    """Rates of all scripts on one case, round after round in this process."""
    scripts = [script for script in SCRIPTS if script.takes(case)]
    runs = [script.make(case) for script in scripts]
    units = []
    for run in runs:
        run(4)
        start = time.perf_counter()
        done = run(4)
        units.append(max(1, round(done * seconds / (time.perf_counter() - start))))
    results = [Result(case=case, contender=script.name, versions={}) for script in scripts]
    for number in range(rounds):
        # Rotated, so that nobody always runs after the same neighbor.
        for step in range(len(runs)):
            index = (number + step) % len(runs)
            start = time.perf_counter()
            done = runs[index](units[index])
            results[index].rates.append(done / (time.perf_counter() - start))
    return results


def report(tables: list[str], ratios: str, arguments: argparse.Namespace, load: float) -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "torchrl", "tensordict"))
    command = f"python benchmarks/swapped_import.py --rounds {arguments.rounds}"
    return "\n\n".join(
        [
            "# The loss imported from here, in TorchRL's own script",
            f"`{command} --seconds {arguments.seconds:g}`",
            f"{processor()}, {os.cpu_count()} cores; {packages}; load of the machine before the "
            f"run {load:.2f}, after it {os.getloadavg()[0]:.2f}. {arguments.rounds} rounds each, "
            "by turns in one process.",
            "Networks, buffer, optimizer, target updater and collector are TorchRL's for all. An "
            "update draws a batch, takes the loss, walks back, and steps optimizers and targets; "
            "TD3's actor and targets follow at every second one, as in TorchRL's example. The loop "
            "collects 64 frames between 64 updates. What "
            "optimizers and targets cost bounds what any loss can gain.",
            ratios,
            *tables,
        ]
    )


def parse() -> argparse.Namespace:
    parser = results_parser(__doc__)
    slugs = [case.slug for case in CASES]
    add = parser.add_argument
    add("--rounds", type=int, default=15, help="rounds of each script (default: 15)")
    add("--seconds", type=float, default=0.5, help="length of a round (default: 0.5)")
    add("--cases", nargs="+", choices=slugs, default=slugs, help="these cases")
    return parser.parse_args()


def main() -> None:
    arguments, load = parse(), os.getloadavg()[0]
    if load > 0.5:
        print(f"the machine is busy (load {load:.2f}): repeat when it is not", file=sys.stderr)
    results, tables = [], []
    for case in CASES:
        if case.slug in arguments.cases:
            torch.manual_seed(case.seed)
            timed = measure(case, rounds=arguments.rounds, seconds=arguments.seconds)
            tables.append(f"## {case.title}\n\n{table(timed)}")
            print(tables[-1], flush=True)
            results += timed
    ratios = ratio_table(results, RATIOS)
    print(f"\n{ratios}")
    write_page(arguments.results, "swapped_import", report(tables, ratios, arguments, load))
    print(f"\nwritten to {arguments.results / 'swapped_import.md'}")


if __name__ == "__main__":
    main()
