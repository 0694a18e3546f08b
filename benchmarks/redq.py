"""Speed of REDQ: ours beside TorchRL and SBX, in one interleaved run.

    python benchmarks/redq.py                                  # the peers are in this interpreter
    python benchmarks/redq.py --peers-python path/to/python    # they are in another one

Writes ``benchmarks/results/redq.md``, ``.csv`` and ``.png``.
"""

from __future__ import annotations

from dataclasses import replace

from _interleave import Contender
from _off_policy import COMPILED, OURS, SBX, TORCHRL, WIDE
from _report import Ratio
from _study import Study
from contenders.case import OffPolicyCase

CASES = (
    OffPolicyCase(
        slug="update",
        title="Updates, 10 critics, 17 observations, 6 actions, 256x256, batch 256, 2 threads",
        kind="update",
        algorithm="redq",
        env="HalfCheetah-v5",
        **WIDE,
        group=20,
    ),
    *(
        OffPolicyCase(
            slug=f"loop-{env.split('-')[0].lower()}",
            title=f"Training loop, {env}, 10 critics, 256x256, batch 256, 20 updates a frame, "
            "2 threads",
            kind="loop",
            algorithm="redq",
            env=env,
            **WIDE,
            ratio=20,
        )
        for env in ("Hopper-v5", "HalfCheetah-v5")
    ),
)

EVERY = replace(OURS, name="torchrl_elegant, actor at every update", options={"actor_period": 1})
BOUND = Contender(
    name="the matrix products alone",
    module="off_policy.bound",
    imports=("torchrl_elegant",),
    kinds=("update",),
)
MINIMUM = replace(SBX, name="SBX's SAC (compiled JAX), minimum over all")

STUDY = Study(
    name="redq",
    title="Speed of REDQ",
    about=__doc__,
    notes=(
        "An update is one of all 10 critics, towards the minimum of 2; a frame of the loop has 20 "
        "of them. The actor follows at every 20th, as in the paper; TorchRL's loss has the actor's "
        "in it at every update, which ours does too where the name says so. The matrix products "
        "alone are what is left of our update without all else: a bound in single precision."
    ),
    cases=CASES,
    contenders={
        "ours": OURS,
        "compiled": COMPILED,
        "ours-every": EVERY,
        "torchrl": TORCHRL,
        "sbx": MINIMUM,
        "bound": BOUND,
    },
    ratios=(
        Ratio(of=OURS.name, to=(TORCHRL.name,), at_least=4.0),
        Ratio(of=COMPILED.name, to=(TORCHRL.name,), at_least=4.0),
        Ratio(of=COMPILED.name, to=(MINIMUM.name,), at_least=1.0),
        Ratio(of=EVERY.name, to=(TORCHRL.name,)),
        Ratio(of=OURS.name, to=(MINIMUM.name,)),
        Ratio(of=OURS.name, to=(BOUND.name,)),
        Ratio(of=BOUND.name, to=(TORCHRL.name,)),
    ),
)

if __name__ == "__main__":
    STUDY.main()
