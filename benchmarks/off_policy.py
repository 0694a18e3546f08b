"""Speed of DDPG, TD3 and DQN: ours beside Stable-Baselines3 and TorchRL, in one interleaved run.

    python benchmarks/off_policy.py                                  # peers in this interpreter
    python benchmarks/off_policy.py --peers-python path/to/python    # they are in another one

Writes ``benchmarks/results/off_policy.md``, ``.csv`` and ``.png``.
"""

from __future__ import annotations

from typing import Any

from _off_policy import COMPILED, NARROW, OURS, SB3, SB3_FUSED, SBX, TORCHRL, WIDE, at_once, case_of
from _report import Ratio
from _study import Study
from contenders.case import OffPolicyCase

CHEETAH = {"env": "HalfCheetah-v5", "actions": 6}
PENDULUM = {"env": "Pendulum-v1", "actions": 1}
CARTPOLE = {"env": "CartPole-v1", "noise": 0.05}


def case(algorithm: str, kind: str, **options: Any) -> OffPolicyCase:
    slug = f"{algorithm}-{kind}-{options['env'].split('-')[0].lower()}"
    return case_of(algorithm, kind, slug, **options)


CASES = (
    *(
        case(algorithm, kind, **task)
        for algorithm in ("ddpg", "td3")
        for kind in ("update", "loop")
        for task in (CHEETAH | WIDE, PENDULUM | NARROW)
    ),
    *(case("dqn", kind, **CARTPOLE, **NARROW) for kind in ("update", "loop")),
)

GROUPED, COMPILED_GROUPED, SB3_GROUPED = map(at_once, (OURS, COMPILED, SB3))

STUDY = Study(
    name="off_policy",
    title="Speed of DDPG, TD3 and DQN",
    about=__doc__,
    notes=(
        "The target networks move by 0.005 at every update (TD3: at every second, with the actor). "
        "*16 at once*, the default of our training, collects 16 frames and then makes their 16 "
        "updates; in updates alone, 16 are asked for in one call. DQN clips gradients at 10 "
        "everywhere. TorchRL draws one batch at a time."
    ),
    cases=CASES,
    contenders={
        "ours": OURS,
        "ours-grouped": GROUPED,
        "compiled": COMPILED,
        "compiled-grouped": COMPILED_GROUPED,
        "torchrl": TORCHRL,
        "sb3": SB3,
        "sb3-grouped": SB3_GROUPED,
        "sb3-fused": SB3_FUSED,
        "sbx": SBX,
    },
    ratios=(
        Ratio(of=GROUPED.name, to=(SB3.name,), at_least=1.3),
        Ratio(of=GROUPED.name, to=(SB3_GROUPED.name,)),
        Ratio(of=OURS.name, to=(SB3.name,)),
        Ratio(of=OURS.name, to=(SB3_FUSED.name,)),
        Ratio(of=OURS.name, to=(TORCHRL.name,)),
        Ratio(of=OURS.name, to=(SBX.name,)),
        Ratio(of=COMPILED.name, to=(SBX.name,)),
        Ratio(of=COMPILED_GROUPED.name, to=(SBX.name,)),
    ),
)

if __name__ == "__main__":
    STUDY.main()
