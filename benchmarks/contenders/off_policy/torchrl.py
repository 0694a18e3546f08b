"""TorchRL's own parts in the manner of its examples: loss, Collector, buffer, SoftUpdate.

Fused Adam in place of the plain one, and none of the examples' logging and evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from tensordict import TensorDict
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, OneHot, TensorDictReplayBuffer
from torchrl.envs import Compose, DoubleToFloat, EnvBase, ExplorationType, GymEnv, TransformedEnv

from contenders.case import OffPolicyCase
from contenders.off_policy.torchrl_updates import BUILDERS
from contenders.transitions import random_transitions

PACKAGES = ("torchrl", "tensordict", "torch")


def make(case: OffPolicyCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    torch.manual_seed(case.seed)
    env = TransformedEnv(GymEnv(case.env), Compose(DoubleToFloat()))
    policy, update = BUILDERS[case.algorithm](case, env)
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(case.buffer), batch_size=case.batch, prefetch=0
    )
    if case.kind == "update":
        buffer.extend(stored(case, env))

        def updates(count: int) -> int:
            for _ in range(count):
                update(buffer.sample())
            return count

        return updates

    collector = Collector(
        env,
        policy,
        frames_per_batch=case.group,
        total_frames=-1,
        exploration_type=ExplorationType.RANDOM,
        auto_register_policy_transforms=False,
    )
    return looper(case, collector, buffer, update)


def stored(case: OffPolicyCase, env: EnvBase) -> TensorDict:
    """The transitions of all contenders, their actions as ``env`` has them."""
    data = {name: torch.from_numpy(column) for name, column in random_transitions(case).items()}
    action, terminated = data["action"], data["terminated"].unsqueeze(-1)
    if isinstance(env.action_spec, OneHot):
        action = torch.nn.functional.one_hot(action, env.action_spec.shape[-1])
    return TensorDict(
        {
            "observation": data["observation"],
            "action": action,
            "next": {
                "observation": data["next_observation"],
                "reward": data["reward"].unsqueeze(-1),
                "done": terminated,
                "terminated": terminated,
            },
        },
        batch_size=[case.filled],
    )


def looper(
    case: OffPolicyCase,
    collector: Collector,
    buffer: TensorDictReplayBuffer,
    update: Callable[[TensorDict], None],
) -> Callable[[int], int]:
    batches: Iterator[TensorDict] = iter(collector)

    def collect() -> int:
        frames = next(batches).reshape(-1)
        buffer.extend(frames)
        return frames.numel()

    warm = 0
    while warm < 1000:
        warm += collect()

    def frames(count: int) -> int:
        done = 0
        while done < count:
            collected = collect()
            for _ in range(collected * case.ratio):
                update(buffer.sample())
            collector.update_policy_weights_()
            done += collected
        return done

    return frames
