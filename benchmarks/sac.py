"""Speed of SAC: ours beside Stable-Baselines3, SBX and TorchRL, in one interleaved run.

    python benchmarks/sac.py                                  # the peers are in this interpreter
    python benchmarks/sac.py --peers-python path/to/python    # they are in another one

Writes ``benchmarks/results/sac.md``, ``.csv`` and ``.png``.
"""

from __future__ import annotations

from dataclasses import replace

from _interleave import Contender
from _study import Study
from contenders.case import OffPolicyCase

CASES = (
    OffPolicyCase(
        slug="update-wide",
        title="Updates, 17 observations, 6 actions, 256x256, batch 256, 2 threads",
        kind="update",
        env="HalfCheetah-v5",
        width=256,
        batch=256,
        threads=2,
        processors=2,
    ),
    OffPolicyCase(
        slug="update-narrow",
        title="Updates, 17 observations, 6 actions, 64x64, batch 64, 1 thread",
        kind="update",
        env="HalfCheetah-v5",
        width=64,
        batch=64,
        threads=1,
        processors=1,
    ),
    OffPolicyCase(
        slug="loop-halfcheetah",
        title="Training loop, HalfCheetah-v5, 256x256, batch 256, an update a frame, 2 threads",
        kind="loop",
        env="HalfCheetah-v5",
        width=256,
        batch=256,
        threads=2,
        processors=2,
    ),
    OffPolicyCase(
        slug="loop-pendulum",
        title="Training loop, Pendulum-v1, 64x64, batch 64, an update a frame, 1 thread",
        kind="loop",
        env="Pendulum-v1",
        width=64,
        batch=64,
        threads=1,
        processors=1,
    ),
    OffPolicyCase(
        slug="loop-ratio-20",
        title="Training loop, HalfCheetah-v5, 256x256, batch 256, 20 updates a frame, 2 threads",
        kind="loop",
        env="HalfCheetah-v5",
        width=256,
        batch=256,
        threads=2,
        processors=2,
        ratio=20,
    ),
)

OURS = Contender(name="torchrl_elegant", module="off_policy.ours", imports=("torchrl_elegant",))
TORCHRL = Contender(name="TorchRL", module="off_policy.torchrl", imports=("torchrl",))
SB3 = Contender(
    name="Stable-Baselines3",
    module="off_policy.sb3",
    python="peers",
    imports=("stable_baselines3", "mujoco"),
)
SBX = Contender(
    name="SBX (compiled JAX)", module="off_policy.sbx", python="peers", imports=("sbx", "mujoco")
)


def grouped(contender: Contender, *kinds: str) -> Contender:
    """The same, but with 16 updates in one call, and in the loop after 16 frames."""
    name = f"{contender.name}, 16 at once"
    return replace(contender, name=name, options={"group": 16}, kinds=kinds)


STUDY = Study(
    name="sac",
    title="Speed of SAC",
    about=__doc__,
    cases=CASES,
    contenders={
        "ours": OURS,
        "ours-grouped": grouped(OURS, "update", "loop"),
        "torchrl": TORCHRL,
        "torchrl-grouped": grouped(TORCHRL, "loop"),
        "sb3": SB3,
        "sb3-fused": replace(SB3, name="Stable-Baselines3, fused Adam", options={"fused": True}),
        "sbx": SBX,
        "sbx-grouped": grouped(SBX, "update", "loop"),
    },
)

if __name__ == "__main__":
    STUDY.main()
