"""Networks, losses and optimisers of TorchRL's examples, one function an algorithm."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import NormalParamExtractor, TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.envs import EnvBase, ExplorationType
from torchrl.modules import (
    MLP,
    AdditiveGaussianModule,
    EGreedyModule,
    ProbabilisticActor,
    QValueActor,
    TanhModule,
    TanhNormal,
    ValueOperator,
)
from torchrl.objectives import LossModule, SoftUpdate, group_optimizers

from contenders.case import OffPolicyCase

Update = Callable[[TensorDict], None]


def sac(case: OffPolicyCase, env: EnvBase) -> tuple[Any, Update]:
    actor, critic = gaussian_actor(case, env), state_action_critic(case, env)
    loss = loss_class(case, "SACLoss")(
        actor, critic, num_qvalue_nets=2, loss_function="l2", delay_qvalue=True
    )
    return actor, updater(case, loss, "actor_network_params", "qvalue_network_params", "log_alpha")


def redq(case: OffPolicyCase, env: EnvBase) -> tuple[Any, Update]:
    """Its loss has the actor's in it at every update of the critics."""
    actor, critic = gaussian_actor(case, env), state_action_critic(case, env)
    members = {"num_qvalue_nets": case.critics, "sub_sample_len": case.members}
    loss = loss_class(case, "REDQLoss")(
        actor, critic, loss_function="l2", delay_qvalue=True, **members
    )
    return actor, updater(case, loss, "actor_network_params", "qvalue_network_params", "log_alpha")


def ddpg(case: OffPolicyCase, env: EnvBase) -> tuple[Any, Update]:
    actor, critic = deterministic_actor(case, env), state_action_critic(case, env)
    loss = loss_class(case, "DDPGLoss")(
        actor, critic, loss_function="l2", delay_actor=True, delay_value=True
    )
    update = updater(case, loss, "actor_network_params", "value_network_params")
    return noisy(case, env, actor), update


def td3(case: OffPolicyCase, env: EnvBase) -> tuple[Any, Update]:
    actor, critic = deterministic_actor(case, env), state_action_critic(case, env)
    loss = loss_class(case, "TD3Loss")(
        actor,
        critic,
        num_qvalue_nets=2,
        loss_function="l2",
        delay_actor=True,
        delay_qvalue=True,
        action_spec=env.action_spec,
    )
    loss.make_value_estimator(gamma=case.gamma)
    target = SoftUpdate(loss, tau=case.tau)
    for_actor = adam(case, leaves(loss.actor_network_params))
    for_critic = adam(case, leaves(loss.qvalue_network_params))
    if not case.losses:
        return actor, steps_alone(loss, [(for_critic, 1), (for_actor, 2), (target, 2)])
    made = 0

    def step(term: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
        term.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def update(batch: TensorDict) -> None:
        nonlocal made
        step(loss.value_loss(batch)[0], for_critic)
        made += 1
        if made % 2 == 0:
            step(loss.actor_loss(batch)[0], for_actor)
            target.step()

    return noisy(case, env, actor), update


def dqn(case: OffPolicyCase, env: EnvBase) -> tuple[Any, Update]:
    spec = env.action_spec
    net = mlp(case, observation_size(env), spec.shape[-1])
    actor = QValueActor(net, in_keys=["observation"], spec=spec)
    loss = loss_class(case, "DQNLoss")(
        actor, loss_function="smooth_l1", delay_value=True, action_space="one_hot"
    )
    loss.make_value_estimator(gamma=case.gamma)
    target = SoftUpdate(loss, tau=case.tau)
    optimizer, params = adam(case, loss.parameters()), list(loss.parameters())

    def update(batch: TensorDict) -> None:
        loss(batch)["loss"].backward()
        torch.nn.utils.clip_grad_norm_(params, 10.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        target.step()

    explore = EGreedyModule(
        spec=spec, eps_init=case.noise, eps_end=case.noise, annealing_num_steps=1
    )
    return TensorDictSequential(actor, explore), update


BUILDERS = {"ddpg": ddpg, "dqn": dqn, "redq": redq, "sac": sac, "td3": td3}


def updater(case: OffPolicyCase, loss: LossModule, *learnt: str) -> Update:
    """One update of everything that ``learnt`` names, an optimiser each."""
    loss.make_value_estimator(gamma=case.gamma)
    target = SoftUpdate(loss, tau=case.tau)
    groups = [getattr(loss, name) for name in learnt]
    optimizer = group_optimizers(
        *(adam(case, [g] if isinstance(g, nn.Parameter) else leaves(g)) for g in groups)
    )
    if not case.losses:
        return steps_alone(loss, [(optimizer, 1), (target, 1)])

    def backward(batch: TensorDict) -> None:
        terms = loss(batch)
        sum(value for name, value in terms.items() if name.startswith("loss_")).backward()

    if case.compiled:
        from torchrl_elegant.objectives import CompiledLoss

        backward = CompiledLoss(loss).backward_terms

    def update(batch: TensorDict) -> None:
        backward(batch)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        target.step()

    return update


def loss_class(case: OffPolicyCase, name: str) -> type[LossModule]:
    """The class that ``from <losses>.objectives import <name>`` gives."""
    return getattr(importlib.import_module(f"{case.losses or 'torchrl'}.objectives"), name)


def steps_alone(loss: LossModule, parts: Sequence[tuple[Any, int]]) -> Update:
    """Update without its loss: the steps of each part, at every n-th update."""
    made = 0
    for param in loss.parameters():
        param.grad = torch.randn_like(param)

    def update(_: TensorDict) -> None:
        nonlocal made
        made += 1
        for part, period in parts:
            if made % period == 0:
                part.step()

    return update


def leaves(params: Any) -> list[nn.Parameter]:
    return list(params.flatten_keys().values())


def adam(case: OffPolicyCase, params: Iterable[nn.Parameter]) -> torch.optim.Adam:
    return torch.optim.Adam(params, lr=case.learning_rate, fused=not case.plain or None)


def mlp(case: OffPolicyCase, inputs: int | None, outputs: int) -> MLP:
    return MLP(
        in_features=inputs,
        out_features=outputs,
        num_cells=[case.width, case.width],
        activation_class=nn.ReLU,
    )


def observation_size(env: EnvBase) -> int:
    return env.observation_spec["observation"].shape[-1]


def gaussian_actor(case: OffPolicyCase, env: EnvBase) -> ProbabilisticActor:
    action = env.action_spec
    net = nn.Sequential(
        mlp(case, observation_size(env), 2 * action.shape[-1]),
        NormalParamExtractor(scale_mapping="biased_softplus_1.0", scale_lb=0.1),
    )
    space = action.space
    return ProbabilisticActor(
        TensorDictModule(net, ["observation"], ["loc", "scale"]),
        spec=action,
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        distribution_kwargs={"low": space.low, "high": space.high, "tanh_loc": False},
        default_interaction_type=ExplorationType.RANDOM,
    )


def deterministic_actor(case: OffPolicyCase, env: EnvBase) -> TensorDictSequential:
    action = env.action_spec
    net = mlp(case, observation_size(env), action.shape[-1])
    return TensorDictSequential(
        TensorDictModule(net, ["observation"], ["param"]),
        TanhModule(in_keys=["param"], out_keys=["action"], spec=action),
    )


def noisy(case: OffPolicyCase, env: EnvBase, actor: TensorDictSequential) -> TensorDictSequential:
    build = partial(AdditiveGaussianModule, annealing_num_steps=1, mean=0.0)
    noise = build(spec=env.action_spec, sigma_init=case.noise, sigma_end=case.noise, std=1.0)
    return TensorDictSequential(actor, noise)


def state_action_critic(case: OffPolicyCase, env: EnvBase) -> ValueOperator:
    critic = ValueOperator(mlp(case, None, 1), in_keys=["action", "observation"])
    with torch.no_grad():  # it is lazy
        critic(env.rand_action(env.reset()))
    return critic
