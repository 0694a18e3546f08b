"""TorchRL's own parts in the manner of its tutorials of teams: VmasEnv, collector, buffer, loss.

Fused Adam in place of the plain one, and none of the tutorials' logging and evaluation.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from tensordict import TensorDict
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, SamplerWithoutReplacement, TensorDictReplayBuffer
from torchrl.envs import ExplorationType, VmasEnv
from torchrl.objectives import LossModule, SoftUpdate

from contenders.case import TeamCase
from contenders.teams.setting import STEPS, Setting, setting_of_case
from contenders.teams.timed import repeated, timed
from contenders.teams.torchrl_losses import BUILDERS

PACKAGES = ("torchrl", "tensordict", "torch", "vmas")
TERMS = {"qmix": [("loss",)], "maddpg": [("loss_actor",), ("loss_value",)]}
TERMS["mappo"] = [("loss_objective", "loss_entropy"), ("loss_critic",)]


def make(case: TeamCase) -> Callable[[int], tuple[int, float]]:
    torch.set_num_threads(1)
    torch.manual_seed(case.seed)
    setting = setting_of_case(case)
    env = VmasEnv(
        scenario=setting.task,
        num_envs=setting.envs,
        continuous_actions=not setting.discrete,
        categorical_actions=False,
        clamp_actions=True,
        max_steps=STEPS,
        seed=case.seed,
        **setting.scenario,
    )
    policy, loss = BUILDERS[case.algorithm](setting, env)
    collector = Collector(
        env,
        policy,
        frames_per_batch=setting.batch_frames,
        total_frames=-1,
        exploration_type=ExplorationType.RANDOM,
        auto_register_policy_transforms=False,
    )
    torch.set_num_threads(1)
    batches = iter(collector)
    options = {"sampler": SamplerWithoutReplacement()} if setting.on_policy else {}
    size = setting.batch_frames if setting.on_policy else setting.buffer
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(size), batch_size=setting.minibatch, **options
    )
    update = updater(setting, loss)

    def collect() -> int:
        batch = next(batches)
        if setting.on_policy:
            with torch.no_grad():
                loss.value_estimator(expanded(batch), params=loss.critic_network_params)
        rows = expanded(batch) if case.algorithm == "maddpg" else batch
        buffer.extend(team_reward(rows.reshape(-1)))
        return batch.numel()

    def learn() -> int:
        for _ in range(setting.epochs or 1):
            for _ in range(setting.updates or setting.batch_frames // setting.minibatch):
                update(buffer.sample())
        return (setting.epochs or 1) * (
            setting.updates or setting.batch_frames // setting.minibatch
        )

    def loop() -> int:
        done = collect()
        learn()
        collector.update_policy_weights_()
        return done

    if case.kind == "update":
        collect()
    rounds = {"collect": collect, "update": learn, "loop": loop}
    return timed(repeated(rounds[case.kind]))


def expanded(batch: TensorDict) -> TensorDict:
    """The batch, with the ends of the team as ends of each agent."""
    shape = (*batch.get_item_shape(("next", "agents", "reward")),)
    for name in ("done", "terminated"):
        flag = batch.get(("next", name)).unsqueeze(-1).expand(shape)
        batch.set(("next", "agents", name), flag)
    return batch


def team_reward(rows: TensorDict) -> TensorDict:
    """The rows, with the mean reward of the agents, which QMIX learns from."""
    return rows.set(("next", "reward"), rows.get(("next", "agents", "reward")).mean(-2))


def updater(setting: Setting, loss: LossModule) -> Callable[[TensorDict], None]:
    params = dict(loss.named_parameters())
    groups = {
        "qmix": [list(params.values())],
        "maddpg": [_named(params, "actor_"), _named(params, "value_")],
        "mappo": [_named(params, "actor_"), _named(params, "critic_")],
    }[setting.algorithm]
    options = {"lr": setting.learning_rate, "eps": setting.adam_eps, "fused": True}
    optimizers = [torch.optim.Adam(group, **options) for group in groups]
    targets = None if setting.on_policy else SoftUpdate(loss, tau=setting.tau)

    def update(rows: TensorDict) -> None:
        terms = loss(rows)
        for names, group, optimizer in zip(
            TERMS[setting.algorithm], groups, optimizers, strict=True
        ):
            sum(terms.get(name, 0.0) for name in names).backward()
            torch.nn.utils.clip_grad_norm_(group, setting.clip)
            optimizer.step()
            optimizer.zero_grad()
        if targets is not None:
            targets.step()

    return update


def _named(params: dict[str, torch.Tensor], start: str) -> list[torch.Tensor]:
    return [value for name, value in params.items() if name.startswith(start)]
