"""Speed of `ChasingEnv`, alone and under a policy.

    python benchmarks/chasing.py

Writes ``benchmarks/results/chasing.md``, ``.csv`` and ``.png``.
"""

from __future__ import annotations

from _interleave import Contender
from _report import Ratio
from _study import Study
from contenders.case import ChasingCase

CASES = tuple(
    ChasingCase(
        slug=f"{kind}{'-discrete' * discrete}-{threads}",
        title=f"4096 rows{', discrete actions' * discrete}, {under}, {threads} "
        f"thread{'s' * (threads > 1)}",
        kind=kind,
        env="elegant/chasing",
        envs=4096,
        discrete=discrete,
        threads=threads,
        processors=threads,
    )
    for kind, under in (("steps", "no policy"), ("policy", "a 64x64 policy"))
    for discrete in (False, True)
    for threads in (1, 2)
)


def contender(name: str, way: str, *kinds: str) -> Contender:
    return Contender(
        name=name,
        module="chasing",
        imports=("torchrl_elegant",),
        kinds=kinds,
        options={"way": way},
    )


ALONE = contender("environment alone", "alone", "steps")
WRAPPED = contender("TorchRL's step_and_maybe_reset", "torchrl", "steps")
APART = contender("policy and environment alone", "alone", "policy")
OURS = contender("SyncCollector", "ours", "policy")
TORCHRL = contender("TorchRL's Collector", "torchrl", "policy")

STUDY = Study(
    name="chasing",
    title="Speed of ChasingEnv",
    about=__doc__,
    notes=(
        "A step is one of one row. *Alone*: `_step`, then `_reset` under the mask of rows that are "
        "done, at every step of a plain loop that keeps nothing. TorchRL resets only where a row "
        "is done, which is rare here, as nothing is learned. Collectors keep observations, "
        "actions, log-probabilities, rewards, flags, counts and trajectory ids of 32 steps a "
        "batch. `torch.compile` is not used."
    ),
    cases=CASES,
    contenders={
        "alone": ALONE,
        "torchrl-steps": WRAPPED,
        "apart": APART,
        "ours": OURS,
        "torchrl": TORCHRL,
    },
    ratios=(
        Ratio(of=OURS.name, to=(APART.name,), at_least=0.8, kinds=("policy",)),
        Ratio(of=OURS.name, to=(TORCHRL.name,), kinds=("policy",)),
        Ratio(of=WRAPPED.name, to=(ALONE.name,), kinds=("steps",)),
    ),
    seconds=1.0,
)

if __name__ == "__main__":
    STUDY.main()
