"""Compiled updates: ours beside the plain ones and SBX (JAX), in one interleaved run.

    python benchmarks/compiled.py --peers-python path/to/python    # has sbx-rl and jax

Writes ``benchmarks/results/compiled.md``, ``.csv`` and ``.png``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from _off_policy import COMPILED, NARROW, OURS, SBX, WIDE
from _report import Ratio
from _study import Study
from contenders.case import OffPolicyCase

CHEETAH, CARTPOLE = {"env": "HalfCheetah-v5", "actions": 6}, {"env": "CartPole-v1", "noise": 0.05}
SIZES: dict[str, dict[str, Any]] = {
    "narrow": NARROW,
    "wide": WIDE | {"threads": 1, "processors": 1},
    "wide-two": WIDE,
}


def case(algorithm: str, kind: str, size: str, **task: Any) -> OffPolicyCase:
    options = SIZES[size]
    width, batch, threads = (options[name] for name in ("width", "batch", "threads"))
    what = {"update": "updates at the sizes of", "loop": "training loop, an update a frame,"}[kind]
    return OffPolicyCase(
        slug=f"{algorithm}-{kind}-{size}",
        title=f"{algorithm.upper()}, {what} {task['env']}, {width}x{width}, batch {batch}, "
        f"{threads} thread{'s' * (threads > 1)}",
        kind=kind,
        algorithm=algorithm,
        **options,
        **task,
    )


CASES = (
    *(
        case(algorithm, "update", size, **task)
        for algorithm, task in (("sac", CHEETAH), ("td3", CHEETAH), ("dqn", CARTPOLE))
        for size in SIZES
    ),
    case("sac", "loop", "wide", **CHEETAH),
    case("sac", "loop", "narrow", env="Pendulum-v1", actions=1),
)

GROUPED, COMPILED_GROUPED, SBX_GROUPED = (
    replace(one, name=f"{one.name}, 16 at once", options=one.options | {"group": 16})
    for one in (OURS, COMPILED, SBX)
)

STUDY = Study(
    name="compiled",
    title="Compiled updates",
    about=__doc__,
    notes=(
        "*16 at once* draws the batches of 16 updates together, as our training does; SBX then "
        "makes the 16 updates in one compiled loop. Compilation falls into the warm-up."
    ),
    cases=CASES,
    contenders={
        "ours-grouped": GROUPED,
        "compiled": COMPILED,
        "compiled-grouped": COMPILED_GROUPED,
        "sbx": SBX,
        "sbx-grouped": SBX_GROUPED,
    },
    ratios=(
        Ratio(of=COMPILED_GROUPED.name, to=(GROUPED.name,)),
        Ratio(of=COMPILED.name, to=(SBX.name,), at_least=1.0),
        Ratio(of=COMPILED_GROUPED.name, to=(SBX.name,), at_least=1.0),
        Ratio(of=COMPILED_GROUPED.name, to=(SBX_GROUPED.name,)),
    ),
)

if __name__ == "__main__":
    STUDY.main()
