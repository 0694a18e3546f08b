"""Collection under the transforms that people use: ours beside TorchRL's collector.

    python benchmarks/transforms.py

Both collect from the same environments with the same policy, in one process and by turns, round
after round; the table holds medians. Writes ``benchmarks/results/transforms.md``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

import torch
from _report import processor
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import (
    CatFrames,
    Compose,
    EnvBase,
    GymEnv,
    ObservationNorm,
    RewardClipping,
    RewardScaling,
    RewardSum,
    SerialEnv,
    StepCounter,
    Transform,
    TransformedEnv,
    VecNorm,
    VecNormV2,
)
from torchrl.modules import Actor

from torchrl_elegant.collectors import SyncCollector

ENVS = 8
STEPS = 64
SEEN = ["observation"]
TRANSFORMS: dict[str, Callable[[], Sequence[Transform]]] = {
    "StepCounter, RewardSum": lambda: [StepCounter(), RewardSum()],
    "VecNorm": lambda: [VecNorm(in_keys=SEEN)],
    "VecNormV2": lambda: [VecNormV2(in_keys=SEEN)],
    "ObservationNorm": lambda: [ObservationNorm(loc=0.1, scale=2.0, in_keys=SEEN)],
    "RewardScaling": lambda: [RewardScaling(loc=0.0, scale=0.1)],
    "RewardClipping": lambda: [RewardClipping(-1.0, 1.0)],
    "CatFrames": lambda: [CatFrames(4, dim=-1, in_keys=SEEN)],
    "VecNorm, RewardScaling, CatFrames, StepCounter, RewardSum": lambda: [
        VecNorm(in_keys=SEEN),
        RewardScaling(loc=0.0, scale=0.1),
        CatFrames(4, dim=-1, in_keys=SEEN),
        StepCounter(),
        RewardSum(),
    ],
}


def build(cls: type[Collector], env_id: str, make: Callable[[], Sequence[Transform]]) -> Collector:
    env: EnvBase = SerialEnv(ENVS, partial(GymEnv, env_id))
    env = TransformedEnv(env, Compose(*make()))
    torch.manual_seed(0)
    sizes = env.full_observation_spec["observation"].shape[-1], env.action_spec.shape[-1]
    net = nn.Sequential(nn.Linear(sizes[0], 64), nn.Tanh(), nn.Linear(64, sizes[1]), nn.Tanh())
    # A discrete action is drawn at random: the policy is not what is measured.
    policy = Actor(net) if env.action_spec.dtype.is_floating_point else None
    return cls(env, policy, frames_per_batch=ENVS * STEPS, total_frames=-1)


def rates(env_id: str, make: Callable[[], Sequence[Transform]], rounds: int) -> list[float]:
    """Median frames a second of ours and of TorchRL's."""
    collectors = [build(cls, env_id, make) for cls in (SyncCollector, Collector)]
    assert collectors[0].is_lean
    batches = [iter(collector) for collector in collectors]
    seconds: list[list[float]] = [[], []]
    for number in range(rounds + 1):
        for which in (0, 1):
            start = time.perf_counter()
            next(batches[which])
            if number:
                seconds[which].append(time.perf_counter() - start)
    for collector in collectors:
        collector.shutdown()
    return [ENVS * STEPS / statistics.median(times) for times in seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="batches of each collector")
    parser.add_argument("--envs", nargs="*", default=["Pendulum-v1", "CartPole-v1"])
    path = Path(__file__).parent / "results" / "transforms.md"
    parser.add_argument("--out", type=Path, default=path)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    lines = [
        "# Collection under transforms",
        "",
        f"Written by `python benchmarks/transforms.py`: {ENVS} environments in one process, "
        f"batches of {ENVS * STEPS} frames, one thread, medians of {arguments.rounds} rounds by "
        f"turns. {processor()}, load {os.getloadavg()[0]:.1f}; TorchRL {version('torchrl')}.",
        "",
        "| environment | transforms | ours, frames/s | TorchRL's, frames/s | ratio |",
        "|---|---|---|---|---|",
    ]
    for env_id in arguments.envs:
        for name, make in TRANSFORMS.items():
            ours, theirs = rates(env_id, make, arguments.rounds)
            lines.append(
                f"| {env_id} | {name} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.1f} |"
            )
            print(lines[-1], flush=True)
    arguments.out.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
