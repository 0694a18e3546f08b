"""VDN and QMIX: their options and their parts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from tensordict.nn import TensorDictModule
from torch import Tensor, nn
from torchrl.modules.models.multiagent import VDNMixer

from torchrl_elegant.algorithms.base import Parts, option
from torchrl_elegant.algorithms.dqn import DQNConfig
from torchrl_elegant.algorithms.multiagent.base import TeamReplayOptions
from torchrl_elegant.algorithms.registry import register
from torchrl_elegant.config.rates import Rate
from torchrl_elegant.modules import QMixer, fit_q_network, observation_shapes, trained
from torchrl_elegant.modules.multiagent import Group
from torchrl_elegant.objectives import QMixLoss
from torchrl_elegant.objectives.multiagent.qmix import QMixKeys

TEAM_VALUE = QMixKeys().global_value


@register("vdn")
@dataclass(frozen=True, kw_only=True)
class VDNConfig(TeamReplayOptions, DQNConfig):
    """Value decomposition (Sunehag et al. 2018, arXiv:1706.05296): the team's value is a sum.

    >>> from torchrl_elegant.envs import make_env
    >>> env = make_env("vmas/navigation", 2, env_kwargs={"actions": "discrete"})
    >>> type(VDNConfig(num_cells=(8,)).assemble(env).loss.mixer_network.module).__name__
    'VDNMixer'
    """

    lr: Rate = 5e-4
    loss_function: Literal["l2", "smooth_l1", "l1"] = "l2"
    epsilon: Rate = (0.8, 0.05)
    # Of steps of a team: pixels are not stored.
    buffer_size: int = 1_000_000
    double: bool = option(
        True,
        "the online network chooses the next actions, the target network values them",
        topic="learning",
    )
    team_reward: Literal["mean", "sum"] = option(
        "mean", "reward of the team, where each agent has its own", topic="team"
    )

    def build(self, env: Any) -> Parts:
        given = self.place("critic", env, self.build_critic)
        network = fit_q_network(given, env, in_keys=self.own_keys(self.critic_keys))
        mixer = self.build_mixer(env)
        loss = QMixLoss(
            trained(network),
            mixer if env.device is None else mixer.to(env.device),
            double_dqn=self.double,
            loss_function=self.loss_function,
            team_reward=self.team_reward,
            action_space=network.action_space,
        )
        names = ("action_value", "chosen_action_value")
        values, chosen = (env.key(name) for name in names)
        loss.set_keys(action_value=values, local_value=chosen)
        loss.make_value_estimator(gamma=self.gamma)
        return self.parts_of(network, loss, env)

    def env_arguments(self, env: str) -> dict[str, Any]:
        return {"actions": "discrete"} if env.startswith("vmas/") else {}

    def build_critic(self, env: Any) -> nn.Module:
        return super().build_critic(env.one_agent)

    def build_mixer(self, group: Group) -> TensorDictModule:
        """Make the module that joins the values of the agents."""
        mixer = VDNMixer(n_agents=group.agents.count, device=group.device or "cpu")
        return TensorDictModule(mixer, [group.key("chosen_action_value")], [TEAM_VALUE])


@register("qmix")
@dataclass(frozen=True, kw_only=True)
class QMIXConfig(VDNConfig):
    """QMIX (Rashid et al. 2018, arXiv:1803.11485): the team's value rises with each agent's.

    The mixer's state is what all agents observe, or the entries ``state_keys``.

    >>> from torchrl_elegant.envs import make_env
    >>> env = make_env("vmas/navigation", 2, env_kwargs={"actions": "discrete"})
    >>> QMIXConfig(num_cells=(8,)).assemble(env).loss.mixer_network.in_keys
    [('agents', 'chosen_action_value'), ('agents', 'observation')]
    """

    mixing_cells: int = option(32, "width of the mixed layer", topic="networks", low=1)
    hypernet_cells: int = option(
        64, "width of the hidden layer of the networks that make the mixer's weights", low=1
    )
    state_keys: tuple[str, ...] | None = option(
        None, "entries that the mixer reads as the state; none: what all agents observe"
    )

    @property
    def settled(self) -> tuple[str, ...]:
        return (*super().settled, "mixing_cells", "hypernet_cells", "state_keys")

    def build_mixer(self, group: Group) -> TensorDictModule:
        shapes = observation_shapes(group, self.own_keys(self.state_keys))
        mixer = QMixer(
            (sum(math.prod(shape) for shape in shapes.values()),),
            n_agents=group.agents.count,
            mixing_embed_dim=self.mixing_cells,
            hypernet_dim=self.hypernet_cells,
            device=group.device or "cpu",
        )
        return TensorDictModule(
            MixedOver(mixer, [len(shape) for shape in shapes.values()]),
            [group.key("chosen_action_value"), *shapes],
            [TEAM_VALUE],
        )


class MixedOver(nn.Module):
    """Mixer whose state is several entries, joined."""

    def __init__(self, mixer: QMixer, dims: list[int]) -> None:
        super().__init__()
        self.mixer, self.dims = mixer, dims

    def forward(self, values: Tensor, *entries: Tensor) -> Tensor:
        rows = zip(entries, self.dims, strict=True)
        state = torch.cat([entry.flatten(-dims) for entry, dims in rows], -1)
        return self.mixer(values, state)
