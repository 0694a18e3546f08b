"""Compiled updates: ours beside the plain ones and SBX (JAX), in one interleaved run.

    python benchmarks/compiled.py --peers-python path/to/python    # has sbx-rl and jax

Writes ``benchmarks/results/compiled.md``, ``.csv`` and ``.png``.
"""

from __future__ import annotations

from typing import Any

from _off_policy import COMPILED, NARROW, OURS, SBX, WIDE, at_once, case_of
from _report import Ratio
from _study import Study
from contenders.case import OffPolicyCase

CHEETAH, CARTPOLE = {"env": "HalfCheetah-v5", "actions": 6}, {"env": "CartPole-v1", "noise": 0.05}
SIZES: dict[str, dict[str, Any]] = {
    "narrow": NARROW,
    "narrow-two": NARROW | {"threads": 2, "processors": 2},
    "wide": WIDE | {"threads": 1, "processors": 1},
    "wide-two": WIDE,
}


def case(algorithm: str, kind: str, size: str, **task: Any) -> OffPolicyCase:
    return case_of(algorithm, kind, f"{algorithm}-{kind}-{size}", **SIZES[size], **task)


CASES = (
    *(
        case(algorithm, "update", size, **task)
        for algorithm, task in (("sac", CHEETAH), ("td3", CHEETAH), ("dqn", CARTPOLE))
        for size in SIZES
    ),
    case("sac", "loop", "wide", **CHEETAH),
    case("sac", "loop", "narrow", env="Pendulum-v1", actions=1),
)

GROUPED, COMPILED_GROUPED, SBX_GROUPED = map(at_once, (OURS, COMPILED, SBX))

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
