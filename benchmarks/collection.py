"""Speed of collection alone: ours beside TorchRL, Stable-Baselines3 and what simulators allow.

    python benchmarks/collection.py                                  # peers in this interpreter
    python benchmarks/collection.py --peers-python path/to/python    # they are in another one

Writes ``benchmarks/results/collection.md``, ``.csv`` and ``.png``.
"""

from __future__ import annotations

from dataclasses import replace

from _interleave import Contender
from _report import Ratio
from _study import Study
from contenders.case import CollectionCase

CASES = (
    *(
        CollectionCase(
            slug=f"{env.split('-')[0].lower()}-{envs}",
            title=f"{env}, {envs} environment{'s' * (envs > 1)}, one process",
            kind="one",
            env=env,
            envs=envs,
            threads=1,
            processors=1,
        )
        for env in ("CartPole-v1", "HalfCheetah-v5")
        for envs in (1, 8, 32)
    ),
    CollectionCase(
        slug="ant-workers",
        title="Ant-v5, 8 environments, one process and two, a thread each",
        kind="workers",
        env="Ant-v5",
        envs=8,
        threads=1,
        processors=2,
    ),
    CollectionCase(
        slug="halfcheetah-free",
        title="HalfCheetah-v5, 2 workers with 4 environments each, free-running, a thread each",
        kind="free",
        env="HalfCheetah-v5",
        envs=8,
        workers=2,
        frames=256,
        threads=1,
        processors=2,
    ),
)

OURS = Contender(
    name="torchrl_elegant",
    module="collection.ours",
    imports=("torchrl_elegant",),
    kinds=("one", "workers"),
)
BOUND = Contender(
    name="bound",
    module="collection.bound",
    imports=("torchrl_elegant",),
    kinds=("one", "workers"),
)
TORCHRL = Contender(
    name="TorchRL", module="collection.torchrl", imports=("torchrl",), kinds=("one", "workers")
)
SB3 = Contender(
    name="Stable-Baselines3",
    module="collection.sb3",
    python="peers",
    imports=("stable_baselines3", "mujoco"),
    kinds=("one",),
)


def two(contender: Contender) -> Contender:
    name = f"{contender.name}, 2 workers"
    return replace(contender, name=name, kinds=("workers",), options={"workers": 2})


STUDY = Study(
    name="collection",
    title="Speed of collection",
    about=__doc__,
    notes=(
        "Frames a second of a stochastic 64x64 policy whose actions and log-probabilities are "
        "kept, in batches of 2048, and no learning. *bound* steps the environments of "
        "`gymnasium.make` in a plain loop, runs the policy's layers once for all of them, and "
        "keeps nothing. TorchRL's environments are `GymEnv` and `SerialEnv` over it. "
        "Stable-Baselines3's rollouts evaluate its critic too; *actor alone* leaves that out. "
        "Free-running workers "
        "write to a replay buffer, whose rows are counted."
    ),
    cases=CASES,
    contenders={
        "ours": OURS,
        "ours-torchrl-envs": replace(
            OURS,
            name="torchrl_elegant over TorchRL's environments",
            kinds=("one",),
            options={"source": "torchrl"},
        ),
        "ours-two": two(OURS),
        "ours-free": replace(
            OURS, name="AsyncCollector", module="collection.free_ours", kinds=("free",)
        ),
        "bound": BOUND,
        "torchrl": TORCHRL,
        "torchrl-compiled": replace(
            TORCHRL,
            name="TorchRL, compiled policy",
            kinds=("one",),
            options={"compiled": True},
        ),
        "torchrl-two": two(TORCHRL),
        "torchrl-free": replace(
            TORCHRL, name="MultiAsyncCollector", module="collection.free_torchrl", kinds=("free",)
        ),
        "sb3": SB3,
        "sb3-actor": replace(
            SB3, name="Stable-Baselines3, actor alone", module="collection.sb3_actor"
        ),
    },
    ratios=(
        Ratio(of=OURS.name, to=(TORCHRL.name,), at_least=4.0, kinds=("one",)),
        Ratio(of=OURS.name, to=(BOUND.name,), at_least=0.8, kinds=("one",)),
        Ratio(of=OURS.name, to=(SB3.name,), at_least=1.0),
        Ratio(of=OURS.name, to=(f"{SB3.name}, actor alone",)),
        Ratio(of=f"{OURS.name} over TorchRL's environments", to=(TORCHRL.name,)),
        Ratio(of=two(OURS).name, to=(OURS.name,), at_least=1.7),
        Ratio(of="AsyncCollector", to=("MultiAsyncCollector",), at_least=6.0),
    ),
)

if __name__ == "__main__":
    STUDY.main()
