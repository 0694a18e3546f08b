"""Policies and losses of TorchRL's for a team, at a setting."""

from __future__ import annotations

from typing import Any

import torch
from tensordict.nn import NormalParamExtractor, TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.data import Composite
from torchrl.envs import EnvBase
from torchrl.modules import (
    AdditiveGaussianModule,
    EGreedyModule,
    MultiAgentMLP,
    ProbabilisticActor,
    QMixer,
    QValueModule,
    TanhDelta,
    TanhNormal,
)
from torchrl.objectives import DDPGLoss, LossModule
from torchrl.objectives.multiagent import MAPPOLoss, QMixerLoss

from contenders.teams.setting import Setting

SEEN, ACTION = ("agents", "observation"), ("agents", "action")
Built = tuple[TensorDictModule, LossModule]


def net(setting: Setting, env: EnvBase, inputs: int, outputs: int, *, central: bool) -> nn.Module:
    return MultiAgentMLP(
        n_agent_inputs=inputs,
        n_agent_outputs=outputs,
        n_agents=env.n_agents,
        centralized=central,
        share_params=True,
        depth=len(setting.cells),
        num_cells=list(setting.cells),
        activation_class=nn.Tanh,
    )


def sizes(env: EnvBase) -> tuple[int, int]:
    """Features that an agent sees, and the size of its action."""
    return env.observation_spec[SEEN].shape[-1], env.full_action_spec[ACTION].shape[-1]


def action_spec(env: EnvBase) -> Any:
    return env.full_action_spec_unbatched[ACTION]


def qmix(setting: Setting, env: EnvBase) -> Built:
    seen, acted = sizes(env)
    values, chosen = ("agents", "action_value"), ("agents", "chosen_action_value")
    local = TensorDictSequential(
        TensorDictModule(net(setting, env, seen, acted, central=False), [SEEN], [values]),
        QValueModule(
            action_value_key=values,
            out_keys=[ACTION, values, chosen],
            spec=Composite(agents=Composite(action=action_spec(env), shape=(env.n_agents,))),
            action_space="one_hot",
        ),
    )
    mixer = QMixer(
        state_shape=(env.n_agents, seen), mixing_embed_dim=32, n_agents=env.n_agents, device="cpu"
    )
    mixed = TensorDictModule(mixer, [chosen, SEEN], ["chosen_action_value"])
    loss = QMixerLoss(local, mixed, delay_value=True, action_space="one-hot")
    loss.set_keys(
        action_value=values,
        local_value=chosen,
        global_value="chosen_action_value",
        action=ACTION,
    )
    loss.make_value_estimator(gamma=setting.gamma)
    greedy = EGreedyModule(
        spec=env.full_action_spec[ACTION],
        action_key=ACTION,
        eps_init=setting.explore_first,
        eps_end=setting.explore_last,
        annealing_num_steps=setting.explore_frames,
    )
    return TensorDictSequential(*local, greedy), loss


def maddpg(setting: Setting, env: EnvBase) -> Built:
    seen, acted = sizes(env)
    spec = action_spec(env)
    body = TensorDictModule(
        net(setting, env, seen, acted, central=False), [SEEN], [("agents", "param")]
    )
    actor = ProbabilisticActor(
        body,
        spec=env.full_action_spec_unbatched,
        in_keys=[("agents", "param")],
        out_keys=[ACTION],
        distribution_class=TanhDelta,
        distribution_kwargs={"low": spec.space.low, "high": spec.space.high},
    )
    value = ("agents", "state_action_value")
    critic = TensorDictSequential(
        TensorDictModule(
            lambda x, a: torch.cat([x, a], -1), [SEEN, ACTION], [("agents", "seen_and_done")]
        ),
        TensorDictModule(
            net(setting, env, seen + acted, 1, central=True), [("agents", "seen_and_done")], [value]
        ),
    )
    loss = DDPGLoss(actor, critic, delay_value=True, loss_function="l2")
    loss.set_keys(
        state_action_value=value,
        reward=("agents", "reward"),
        done=("agents", "done"),
        terminated=("agents", "terminated"),
    )
    loss.make_value_estimator(gamma=setting.gamma)
    noise = AdditiveGaussianModule(
        spec=env.full_action_spec_unbatched,
        action_key=ACTION,
        sigma_init=setting.explore_first,
        sigma_end=setting.explore_last,
        annealing_num_steps=setting.explore_frames,
    )
    return TensorDictSequential(actor, noise), loss


def mappo(setting: Setting, env: EnvBase) -> Built:
    seen, acted = sizes(env)
    spec = action_spec(env)
    body = nn.Sequential(net(setting, env, seen, 2 * acted, central=False), NormalParamExtractor())
    names = [("agents", "loc"), ("agents", "scale")]
    actor = ProbabilisticActor(
        TensorDictModule(body, [SEEN], names),
        spec=env.full_action_spec_unbatched,
        in_keys=names,
        out_keys=[ACTION],
        distribution_class=TanhNormal,
        distribution_kwargs={"low": spec.space.low, "high": spec.space.high},
        return_log_prob=True,
        log_prob_key=("agents", "sample_log_prob"),
    )
    critic = TensorDictModule(
        net(setting, env, seen, 1, central=True), [SEEN], [("agents", "state_value")]
    )
    loss = MAPPOLoss(
        actor,
        critic,
        clip_epsilon=setting.clip_epsilon,
        entropy_coeff=setting.entropy,
        normalize_advantage=False,
    )
    loss.set_keys(
        reward=("agents", "reward"),
        action=ACTION,
        done=("agents", "done"),
        terminated=("agents", "terminated"),
        value=("agents", "state_value"),
        sample_log_prob=("agents", "sample_log_prob"),
    )
    loss.make_value_estimator(gamma=setting.gamma, lmbda=setting.lmbda)
    return actor, loss


BUILDERS = {"qmix": qmix, "maddpg": maddpg, "mappo": mappo}
