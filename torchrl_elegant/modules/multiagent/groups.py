"""Groups of agents in an environment, and their specs as one agent or the group sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from tensordict import NestedKey, unravel_key
from torchrl.data import Composite
from torchrl.envs import EnvBase

from torchrl_elegant.functional import path_of
from torchrl_elegant.modules.multiagent.agents import Agents


@dataclass(frozen=True, kw_only=True)
class Group:
    """Group of agents: keys of its entries, and the specs that networks are built from.

    It stands where builders of networks take an environment. As ``one_agent`` it has the specs of a
    single agent, so that a network for one agent serves the group; as it is, entries have all
    agents.

    >>> from torchrl_elegant.envs import make_env
    >>> group = groups_of(make_env("vmas/balance", 2, env_kwargs={"n_agents": 4}))["agents"]
    >>> entry = ("agents", "observation")
    >>> (
    ...     group.observation_spec_unbatched[entry].shape,
    ...     group.one_agent.observation_spec_unbatched[entry].shape,
    ... )
    (torch.Size([4, 16]), torch.Size([16]))
    """

    name: NestedKey
    agents: Agents
    action: NestedKey
    device: torch.device | None
    observation_spec_unbatched: Composite
    full_action_spec_unbatched: Composite

    @property
    def path(self) -> str:
        """Its name as one word."""
        return "_".join(path_of(self.name))

    def key(self, name: str) -> NestedKey:
        """The key of an entry of the group."""
        return unravel_key((*path_of(self.name), name))

    def with_agents(self, **options: bool) -> Group:
        """The same group with other options of ``Agents``."""
        return replace(self, agents=replace(self.agents, **options))

    @property
    def one_agent(self) -> Group:
        """The same group with the specs of one agent, and its own entries alone."""
        above = path_of(self.name)
        seen, acted = (
            _selected(spec, lambda path: path[: len(above)] == above, agents=True)
            for spec in (self.observation_spec_unbatched, self.full_action_spec_unbatched)
        )
        return replace(self, observation_spec_unbatched=seen, full_action_spec_unbatched=acted)


def groups_of(env: EnvBase) -> dict[NestedKey, Group]:
    """Groups of an environment by name: each entry ``action`` below the root is one.

    A group sees its own entries, and those that belong to no group.

    >>> from torchrl_elegant.envs import make_env
    >>> list(groups_of(make_env("vmas/simple_tag", 2)))
    ['adversary', 'agent']
    """
    paths = [path_of(key) for key in env.action_keys]
    if any(len(path) < 2 for path in paths):
        raise ValueError(
            f"`env` must have groups of agents, got the actions {env.action_keys}; choose an "
            "algorithm for one agent, such as sac, ppo or dqn"
        )
    names = [path[:-1] for path in paths]
    seen, acted = env.observation_spec_unbatched, env.full_action_spec_unbatched
    groups = {}
    for path, name in zip(paths, names, strict=True):
        others = [other for other in names if other != name]

        def is_seen(entry: tuple[str, ...], others: Any = others) -> bool:
            return not any(entry[: len(other)] == other for other in others)

        key = unravel_key(path)
        groups[unravel_key(name)] = Group(
            name=unravel_key(name),
            agents=Agents(count=acted[key].shape[0]),
            action=key,
            device=env.device,
            observation_spec_unbatched=_selected(seen, is_seen),
            full_action_spec_unbatched=_selected(acted, path.__eq__),
        )
    return groups


def _selected(
    spec: Composite, takes: Callable[[tuple[str, ...]], bool], *, agents: bool = False
) -> Composite:
    """Entries of ``spec`` whose paths ``takes`` accepts; of one agent where ``agents``."""
    found = Composite(device=spec.device)
    for key, leaf in spec.items(True, True):
        if takes(path_of(key)):
            found[key] = leaf[0] if agents else leaf
    return found
