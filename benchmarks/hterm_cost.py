"""What the Hamiltonian term costs at its defaults: PPO and SAC on HalfCheetah-v5, with and without.

    python benchmarks/hterm_cost.py

Writes ``benchmarks/results/hterm_cost.md``, ``.csv`` and ``.png``.
"""

from __future__ import annotations

from dataclasses import replace

from _interleave import Contender
from _report import Ratio
from _study import Study
from contenders.case import HTermCase

SETTINGS = {
    "ppo": ("PPO, 8 environments, 2048 frames a round, 64x64", {"envs": 8, "threads": 1}),
    "sac": ("SAC, 16 frames a round, 256x256, batch 256", {"envs": 1, "threads": 2}),
}
KINDS = {"learn": "the learner's part of a round", "loop": "the whole training loop"}
CASES = tuple(
    HTermCase(
        slug=f"{algorithm}-{kind}",
        title=f"{about}, {said}",
        kind=kind,
        env="HalfCheetah-v5",
        algorithm=algorithm,
        processors=2,
        **settings,
    )
    for algorithm, (about, settings) in SETTINGS.items()
    for kind, said in KINDS.items()
)

WITHOUT = Contender(name="without", module="hterm", imports=("torchrl_elegant",))
WITH = replace(WITHOUT, name="with the H-term", options={"hterm": True})

STUDY = Study(
    name="hterm_cost",
    title="Cost of the H-term",
    about=__doc__,
    notes=(
        "Algorithms and term at their defaults: a term of 16 slices of 16 steps at every 8th "
        "update of the actor. The learner's part of a round is all that is done with frames once "
        "they are there: for PPO advantages, 10 epochs and the report, for SAC the draws of its "
        "batches and their updates, for both the cutting of slices. At least 0.80 of the rate is "
        "at most 25 % more time. The training loops are those of `train`, without evaluations and "
        "checkpoints."
    ),
    cases=CASES,
    contenders={"without": WITHOUT, "with": WITH},
    interpreters={},
    ratios=(
        Ratio(of=WITH.name, to=(WITHOUT.name,), at_least=0.8, kinds=("learn",)),
        Ratio(of=WITH.name, to=(WITHOUT.name,), kinds=("loop",)),
    ),
    seconds=4.0,
)

if __name__ == "__main__":
    STUDY.main()
