"""Critics built from the specs of a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensordict import NestedKey

from torchrl_elegant.modules.build import bounded_action, observation_shapes
from torchrl_elegant.modules.multiagent.critics import Sees, TeamCritic, TeamValue
from torchrl_elegant.modules.multiagent.groups import Group
from torchrl_elegant.modules.value import StateValue


def build_team_critic(
    group: Group,
    *,
    sees: Sees = "all",
    num_critics: int = 2,
    in_keys: Sequence[NestedKey] | None = None,
    **network: Any,
) -> TeamCritic:
    """Builds critics of what a group sees and does, with a value for each agent.

    ``network`` has ``num_cells``, ``activation`` and ``hidden_gain``.

    >>> from torchrl_elegant.envs import make_env
    >>> from torchrl_elegant.modules.multiagent import groups_of
    >>> group = groups_of(make_env("vmas/navigation", 2))["agents"]
    >>> build_team_critic(group, num_critics=1, num_cells=(8,)).num_critics
    1
    """
    specs = group if sees == "all" else group.one_agent
    key, spec = bounded_action(specs, algorithm="a Q(s, a) critic")
    critic = TeamCritic(
        observation=observation_shapes(specs, in_keys),
        action_shape=spec.shape,
        agents=group.agents,
        sees=sees,
        num_critics=num_critics,
        action_key=key,
        **network,
    )
    return critic if group.device is None else critic.to(group.device)


def build_team_value(
    group: Group,
    *,
    sees: Sees = "all",
    in_keys: Sequence[NestedKey] | None = None,
    **network: Any,
) -> StateValue:
    """Builds a critic of what a group sees, with a value for each agent.

    ``network`` has ``num_cells``, ``activation`` and ``hidden_gain``.

    >>> from torchrl_elegant.envs import make_env
    >>> from torchrl_elegant.modules.multiagent import groups_of
    >>> env = make_env("vmas/navigation", 2)
    >>> critic = build_team_value(groups_of(env)["agents"], num_cells=(8,))
    >>> critic(env.reset())["agents", "state_value"].shape
    torch.Size([2, 4, 1])
    """
    key = group.key("state_value")
    if sees == "own":
        seen = observation_shapes(group.one_agent, in_keys)
        critic = StateValue(observation=seen, value_key=key, agents=group.agents, **network)
    else:
        seen = observation_shapes(group, in_keys)
        critic = TeamValue(observation=seen, agents=group.agents, value_key=key, **network)
    return critic if group.device is None else critic.to(group.device)
