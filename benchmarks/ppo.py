"""Speed of PPO end to end: ours beside TorchRL, Stable-Baselines3, SBX and RLlib.

    python benchmarks/ppo.py --peers-python path/to/python --rllib-python path/to/python

Without ``--peers-python`` the peers are looked for in this interpreter; without ``--rllib-python``
RLlib is left out. Writes ``benchmarks/results/ppo.md``, ``.csv`` and ``.png``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from _interleave import Contender
from _report import Ratio
from _study import PEERS, RLLIB, Study
from contenders.case import PPOCase

CASES = tuple(
    PPOCase(
        slug=env.split("-")[0].lower(),
        title=f"PPO, {env}, 8 environments",
        kind="ppo",
        env=env,
        threads=1,
        processors=2,
    )
    for env in ("HalfCheetah-v5", "CartPole-v1")
)

OURS = Contender(name="torchrl_elegant", module="ppo.ours", imports=("torchrl_elegant",))
TORCHRL = Contender(name="TorchRL", module="ppo.torchrl", imports=("torchrl",))
SB3 = Contender(
    name="Stable-Baselines3",
    module="ppo.sb3",
    python="peers",
    imports=("stable_baselines3", "mujoco"),
)
SBX = Contender(
    name="SBX (compiled JAX)", module="ppo.sbx", python="peers", imports=("sbx", "mujoco")
)
RLLIB_PPO = Contender(
    name="RLlib", module="ppo.rllib", python="rllib", imports=("ray.rllib", "mujoco")
)

COMPILED = f"{OURS.name}, compiled loss"


def variant(contender: Contender, said: str, **options: Any) -> Contender:
    return replace(contender, name=f"{contender.name}, {said}", options=options)


STUDY = Study(
    name="ppo",
    title="Speed of PPO",
    about=__doc__,
    notes=(
        "Collection and learning, no evaluation: 64x64 tanh for actor and critic, 2048 frames a "
        "batch (256 steps of 8 environments), 10 epochs of minibatches of 64, Adam 3e-4, gamma "
        "0.99, lambda 0.95, clip 0.2, critic 0.5, no entropy, gradient norm 0.5, advantages "
        "normalized in each minibatch. Every contender has both processors, and one thread where "
        "its name says nothing."
    ),
    cases=CASES,
    contenders={
        "ours": OURS,
        "ours-compiled": variant(OURS, "compiled loss", compiled=True),
        "torchrl": TORCHRL,
        "torchrl-compiled": variant(TORCHRL, "compiled loss", compiled=True),
        "sb3": SB3,
        "sb3-two-threads": variant(SB3, "2 threads", threads=2),
        "sb3-fused": replace(SB3, name="Stable-Baselines3, fused Adam", module="ppo.sb3_fused"),
        "sbx": SBX,
        "rllib": RLLIB_PPO,
        "rllib-runner": variant(RLLIB_PPO, "1 env runner", runners=1),
        "rllib-two-runners": variant(RLLIB_PPO, "2 env runners", runners=2),
    },
    interpreters={"peers": PEERS, "rllib": RLLIB},
    ratios=(
        Ratio(of=OURS.name, to=(TORCHRL.name,), at_least=3.5),
        Ratio(of=OURS.name, to=(f"{TORCHRL.name}, compiled loss",)),
        Ratio(of=OURS.name, to=(SB3.name, f"{SB3.name}, 2 threads"), at_least=1.6),
        Ratio(of=OURS.name, to=(f"{SB3.name}, fused Adam",)),
        Ratio(
            of=OURS.name,
            to=(
                RLLIB_PPO.name,
                f"{RLLIB_PPO.name}, 1 env runner",
                f"{RLLIB_PPO.name}, 2 env runners",
            ),
            at_least=2.5,
        ),
        Ratio(of=OURS.name, to=(SBX.name,)),
        Ratio(of=COMPILED, to=(TORCHRL.name,), at_least=3.5),
        Ratio(of=COMPILED, to=(f"{TORCHRL.name}, compiled loss",)),
        Ratio(of=COMPILED, to=(SB3.name, f"{SB3.name}, 2 threads"), at_least=1.6),
        Ratio(of=COMPILED, to=(SBX.name,)),
    ),
    seconds=4.0,
)

if __name__ == "__main__":
    STUDY.main()
