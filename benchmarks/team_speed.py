"""Speed of teams on VMAS: ours beside BenchMARL and TorchRL's own parts, in one interleaved run.

    python benchmarks/team_speed.py --benchmarl-python path/to/python

BenchMARL needs an interpreter of its own (``benchmarks/requirements-benchmarl.txt``); without
``--benchmarl-python`` it is left out. Writes ``benchmarks/results/team_speed.md``, ``.csv`` and
``.png``.
"""

from __future__ import annotations

from dataclasses import replace

from _interleave import Contender, Interpreter
from _report import Ratio
from _study import Study
from contenders.case import TeamCase

BENCHMARL_PYTHON = Interpreter(
    install="-r benchmarks/requirements-benchmarl.txt", option="--benchmarl-python", path=""
)
OURS = Contender(name="torchrl_elegant", module="teams.speed_ours", imports=("torchrl_elegant",))
COMPILED = replace(
    OURS,
    name="torchrl_elegant, compiled",
    kinds=("update", "loop"),
    options={"compiled": True},
)
TORCHRL = Contender(name="TorchRL", module="teams.speed_torchrl", imports=("torchrl", "vmas"))
BENCHMARL = Contender(
    name="BenchMARL",
    module="teams.speed_benchmarl",
    python="benchmarl",
    imports=("benchmarl", "vmas"),
)
KINDS = {
    "collect": "frames collected and stored",
    "update": "updates of 128 rows",
    "loop": "training loop",
}


def case_of(kind: str, algorithm: str, agents: int, envs: int) -> TeamCase:
    return TeamCase(
        slug=f"{kind}-{algorithm}-{agents}-{envs}",
        title=f"{algorithm.upper()}, {KINDS[kind]}, navigation, {agents} agents, {envs} "
        "environments",
        kind=kind,
        env="navigation",
        threads=1,
        processors=1,
        algorithm=algorithm,
        agents=agents,
        envs=envs,
    )


CASES = (
    *(case_of("collect", "maddpg", agents, envs) for agents in (3, 10) for envs in (60, 600)),
    *(case_of("update", name, agents, 60) for name in ("qmix", "maddpg") for agents in (3, 10)),
    *(case_of("loop", name, agents, 60) for name in ("qmix", "maddpg") for agents in (3, 10)),
    *(case_of("loop", "mappo", agents, 60) for agents in (3, 10)),
)

STUDY = Study(
    name="team_speed",
    title="Speed of teams on VMAS",
    about=__doc__,
    notes=(
        "Rates are per second of the processor, on which each contender has one thread: what other "
        "programs do changes them less than rates by the clock. tanh 128x128, parameters shared, "
        "Adam, gradient norm 5. QMIX and MADDPG: batches of 128, an update for 6 frames, 10 steps "
        "of all environments between rounds. MAPPO: 100 steps of all environments, 15 epochs of "
        "minibatches of 1000. Episodes of 100 steps. Updates have what one batch of frames has "
        "left in the buffer. Each library has its own recipe where no setting says otherwise: our "
        "mixer's hypernetworks have a hidden layer and the others' none; our MADDPG has a value "
        "for each agent, and the actions of the others as stored."
    ),
    cases=CASES,
    contenders={
        "ours": OURS,
        "ours-compiled": COMPILED,
        "torchrl": TORCHRL,
        "benchmarl": BENCHMARL,
    },
    interpreters={"benchmarl": BENCHMARL_PYTHON},
    ratios=(
        Ratio(of=OURS.name, to=(BENCHMARL.name,)),
        Ratio(of=COMPILED.name, to=(BENCHMARL.name,), at_least=2.0),
        Ratio(of=OURS.name, to=(TORCHRL.name,)),
        Ratio(of=COMPILED.name, to=(TORCHRL.name,)),
    ),
)

if __name__ == "__main__":
    STUDY.main()
