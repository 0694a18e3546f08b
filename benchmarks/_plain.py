"""SAC and PPO on TorchRL's own paths, to compare what the fast ones learn.

    cd benchmarks && python ../scripts/train_ppo.py algorithm=_plain:ppo_plain env=CartPole-v1

The same networks, settings and training loop, with TorchRL's `Collector`, losses, `GAE`, Adam and
`SoftUpdate` in place of ours. Importing this module turns the fast rollouts of its process off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDictBase
from torchrl import objectives
from torchrl.envs import EnvBase

from torchrl_elegant.algorithms import Parts, PPOConfig, SACConfig, register
from torchrl_elegant.collectors.sync import FAST_ROLLOUTS
from torchrl_elegant.config.rates import first_of
from torchrl_elegant.modules import StateValue, StochasticActor, build_actor, build_critic
from torchrl_elegant.objectives.common.update_loss import UpdateDefaults

FAST_ROLLOUTS.clear()


class PlainPPOLoss(UpdateDefaults, objectives.ClipPPOLoss):
    """TorchRL's loss, with what a `RolloutLearner` asks for."""

    report_keys = ("explained_variance",)

    @property
    def metric_names(self) -> list[str]:
        return [str(key) for key in self.out_keys]

    @property
    def row_keys(self) -> list[str]:
        return ["observation", "action", "action_log_prob", "advantage", "value_target"]

    def estimate(self, rollout: TensorDictBase) -> TensorDictBase:
        return self.value_estimator(
            rollout,
            params=self.critic_network_params.detach(),
            target_params=self.target_critic_network_params,
        )

    def update_terms(self, rows: TensorDictBase, *, actor: bool = True) -> dict[str, torch.Tensor]:
        return {name: value for name, value in self(rows).items() if name.startswith("loss_")}

    def report(self, rows: TensorDictBase) -> dict[str, torch.Tensor]:
        terms = self(rows).items()
        return {name: value.mean() for name, value in terms if not name.startswith("loss_")}


@register("ppo_plain")
@dataclass(frozen=True, kw_only=True)
class PlainPPOConfig(PPOConfig):
    """PPO by TorchRL's loss."""

    def build_loss(self, actor: StochasticActor, critic: StateValue) -> PlainPPOLoss:
        return PlainPPOLoss(actor, critic, **self.loss_arguments())

    def build_optimizer(self, loss: PlainPPOLoss) -> torch.optim.Optimizer:
        return torch.optim.Adam(loss.parameters(), lr=first_of(self.lr))


@register("sac_plain")
@dataclass(frozen=True, kw_only=True)
class PlainSACConfig(SACConfig):
    """SAC by TorchRL's loss."""

    def build(self, env: EnvBase) -> Parts:
        networks: dict[str, Any] = {"num_cells": self.num_cells, "activation": self.activation}
        actor = build_actor(env, **networks)
        critic = build_critic(env, num_critics=1, **networks)
        loss = objectives.SACLoss(
            actor,
            critic,
            num_qvalue_nets=self.num_critics,
            loss_function=self.loss_function,
            action_spec=env.action_spec_unbatched,
        )
        loss.make_value_estimator(gamma=self.gamma)
        groups = [
            {"params": list(loss.actor_network_params.parameters()), "lr": first_of(self.actor_lr)},
            {
                "params": list(loss.qvalue_network_params.parameters()),
                "lr": first_of(self.critic_lr),
            },
            {"params": [loss.log_alpha], "lr": first_of(self.alpha_lr)},
        ]
        return Parts(
            policy=actor,
            loss=loss,
            optimizer=torch.optim.Adam(groups),
            target_updater=objectives.SoftUpdate(loss, tau=self.tau),
        )
