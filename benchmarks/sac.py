"""Speed of SAC: ours beside Stable-Baselines3, SBX and TorchRL, in one interleaved run.

    python benchmarks/sac.py                                  # the peers are in this interpreter
    python benchmarks/sac.py --peers-python path/to/python    # they are in another one

Writes ``benchmarks/results/sac.md``, ``.csv`` and ``.png``.
"""

from __future__ import annotations

from _off_policy import COMPILED, NARROW, OURS, SB3, SB3_FUSED, SBX, TORCHRL, WIDE, at_once
from _study import Study
from contenders.case import OffPolicyCase

CASES = (
    OffPolicyCase(
        slug="update-wide",
        title="Updates, 17 observations, 6 actions, 256x256, batch 256, 2 threads",
        kind="update",
        env="HalfCheetah-v5",
        **WIDE,
    ),
    OffPolicyCase(
        slug="update-narrow",
        title="Updates, 17 observations, 6 actions, 64x64, batch 64, 1 thread",
        kind="update",
        env="HalfCheetah-v5",
        **NARROW,
    ),
    OffPolicyCase(
        slug="loop-halfcheetah",
        title="Training loop, HalfCheetah-v5, 256x256, batch 256, an update a frame, 2 threads",
        kind="loop",
        env="HalfCheetah-v5",
        **WIDE,
    ),
    OffPolicyCase(
        slug="loop-pendulum",
        title="Training loop, Pendulum-v1, 64x64, batch 64, an update a frame, 1 thread",
        kind="loop",
        env="Pendulum-v1",
        **NARROW,
    ),
    OffPolicyCase(
        slug="loop-ratio-20",
        title="Training loop, HalfCheetah-v5, 256x256, batch 256, 20 updates a frame, 2 threads",
        kind="loop",
        env="HalfCheetah-v5",
        **WIDE,
        ratio=20,
    ),
)


STUDY = Study(
    name="sac",
    title="Speed of SAC",
    about=__doc__,
    cases=CASES,
    contenders={
        "ours": OURS,
        "ours-grouped": at_once(OURS, "update", "loop"),
        "compiled": COMPILED,
        "compiled-grouped": at_once(COMPILED, "update", "loop"),
        "torchrl": TORCHRL,
        "torchrl-grouped": at_once(TORCHRL, "loop"),
        "sb3": SB3,
        "sb3-fused": SB3_FUSED,
        "sbx": SBX,
        "sbx-grouped": at_once(SBX, "update", "loop"),
    },
)

if __name__ == "__main__":
    STUDY.main()
