"""TorchRL's own parts in the manner of its SAC example: SACLoss, Collector, buffer, SoftUpdate.

Fused Adam in place of the plain one, and none of the example's logging and evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from tensordict import TensorDict
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import Compose, DoubleToFloat, EnvBase, ExplorationType, GymEnv, TransformedEnv
from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import SACLoss, SoftUpdate, group_optimizers

from contenders.case import SACCase
from contenders.transitions import random_transitions

PACKAGES = ("torchrl", "tensordict", "torch")


def make(case: SACCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    torch.manual_seed(case.seed)
    env = TransformedEnv(GymEnv(case.env), Compose(DoubleToFloat()))
    actor, critic = networks(case, env)
    update = updater(case, actor, critic)
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(case.buffer), batch_size=case.batch, prefetch=0
    )
    if case.kind == "update":
        buffer.extend(stored(case))

        def updates(count: int) -> int:
            for _ in range(count):
                update(buffer.sample())
            return count

        return updates

    collector = Collector(
        env,
        actor,
        frames_per_batch=case.group,
        total_frames=-1,
        exploration_type=ExplorationType.RANDOM,
        auto_register_policy_transforms=False,
    )
    return looper(case, collector, buffer, update)


def networks(case: SACCase, env: EnvBase) -> tuple[ProbabilisticActor, ValueOperator]:
    action = env.action_spec
    actor_net = nn.Sequential(
        MLP(
            in_features=env.observation_spec["observation"].shape[-1],
            out_features=2 * action.shape[-1],
            num_cells=[case.width, case.width],
            activation_class=nn.ReLU,
        ),
        NormalParamExtractor(scale_mapping="biased_softplus_1.0", scale_lb=0.1),
    )
    actor = ProbabilisticActor(
        TensorDictModule(actor_net, ["observation"], ["loc", "scale"]),
        spec=action,
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        distribution_kwargs={
            "low": action.space.low,
            "high": action.space.high,
            "tanh_loc": False,
        },
        default_interaction_type=ExplorationType.RANDOM,
    )
    critic = ValueOperator(
        MLP(out_features=1, num_cells=[case.width, case.width], activation_class=nn.ReLU),
        in_keys=["action", "observation"],
    )
    with torch.no_grad():
        critic(actor(env.reset()))
    return actor, critic


def updater(
    case: SACCase, actor: ProbabilisticActor, critic: ValueOperator
) -> Callable[[TensorDict], None]:
    loss = SACLoss(actor, critic, num_qvalue_nets=2, loss_function="l2", delay_qvalue=True)
    loss.make_value_estimator(gamma=case.gamma)
    target = SoftUpdate(loss, tau=case.tau)

    def adam(parameters) -> torch.optim.Adam:
        return torch.optim.Adam(parameters, lr=case.learning_rate, fused=True)

    optimizer = group_optimizers(
        adam(list(loss.actor_network_params.flatten_keys().values())),
        adam(list(loss.qvalue_network_params.flatten_keys().values())),
        adam([loss.log_alpha]),
    )

    def update(batch: TensorDict) -> None:
        terms = loss(batch)
        (terms["loss_actor"] + terms["loss_qvalue"] + terms["loss_alpha"]).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        target.step()

    return update


def stored(case: SACCase) -> TensorDict:
    data = {name: torch.from_numpy(column) for name, column in random_transitions(case).items()}
    terminated = data["terminated"].unsqueeze(-1)
    return TensorDict(
        {
            "observation": data["observation"],
            "action": data["action"],
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
    case: SACCase,
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
