"""Options that all algorithms for teams share, and how a group's parts are assembled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from torch import nn
from torchrl.envs import EnvBase

from torchrl_elegant.algorithms.base import AlgorithmConfig, Parts, check, check_unused, option
from torchrl_elegant.algorithms.hterm import HTermConfig
from torchrl_elegant.algorithms.multiagent.joined import joined_parts
from torchrl_elegant.algorithms.multiagent.selfplay import with_selfplay
from torchrl_elegant.algorithms.off_policy import ActorCriticConfig, OffPolicyConfig
from torchrl_elegant.algorithms.registry import ALGORITHMS
from torchrl_elegant.config.options import options_of
from torchrl_elegant.config.rates import Rate
from torchrl_elegant.envs import EnvKeys
from torchrl_elegant.modules import Memory
from torchrl_elegant.modules.multiagent import Group, groups_of
from torchrl_elegant.modules.multiagent.build import build_team_critic
from torchrl_elegant.modules.multiagent.critics import Sees
from torchrl_elegant.objectives.multiagent.maddpg import Others


@dataclass(frozen=True, kw_only=True)
class TeamOptions(AlgorithmConfig):
    """Options of algorithms for teams; stands before the algorithm for one agent.

    Builders are given a ``Group`` in the place of the environment.
    """

    teams: ClassVar[bool] = True
    example: ClassVar[str] = "vmas/navigation"

    gamma: float = 0.9
    max_grad_norm: float | None = 5.0
    num_cells: tuple[int, ...] = (128, 128)
    activation: str = "tanh"
    share_parameters: bool = option(
        True, "one network for all agents of a group; else each has its own", topic="team"
    )
    agent_id: bool = option(False, "append the agent's number to what its networks read")
    groups: Mapping[str, str] = option(
        {}, "algorithm of single groups, as groups.adversary=matd3; the others train with this one"
    )
    # Of single agents.
    reward_scale: float = option(1.0, has_text=False)
    normalize_observation: bool = option(False, has_text=False)
    normalize_value: bool = option(False, has_text=False)
    hterm: HTermConfig | None = option(None, has_text=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for item in fields(self):
            offered = item.name in options_of(type(self)) or item.name == "networks"
            value, way_out = getattr(self, item.name), "leave it out"
            same = offered or value == item.default
            check(same, item.name, f"stay {item.default} with {self.name}", value, way_out)
        alone, way_out = not (self.networks and self.groups), "leave groups out"
        check(alone, "networks", "be none with groups", sorted(self.networks or ()), way_out)
        way_out = "networks of their own tell the agents apart already"
        alone = not self.agent_id or self.share_parameters
        check(alone, "agent_id", "be false with share_parameters=false", True, way_out)
        shares = self.share_parameters or not self.recurrent
        must, way_out = "be true with recurrent=true", "tell the agents apart by agent_id=true"
        check(shares, "share_parameters", must, self.share_parameters, way_out)

    @property
    def settled(self) -> tuple[str, ...]:
        offered = options_of(type(self))
        single = (name for name in super().settled if name in offered)
        return (*single, "share_parameters", "agent_id", "groups")

    def build_actor(self, env: Any) -> nn.Module:
        return super().build_actor(env.one_agent)  # type: ignore[misc]

    def build_memory(self, name: str, env: Any, **options: Any) -> Memory:
        if self.remembers_all(name):
            return super().build_memory(name, env)
        return super().build_memory(name, env.one_agent, ids=env.agents.ids)

    def remembers_all(self, name: str) -> bool:
        """True where the memory of the place ``name`` is one of all agents, and not of each."""
        return False

    def assemble(self, env: EnvBase) -> Parts:
        options = {"share_parameters": self.share_parameters, "agent_id": self.agent_id}
        groups = [group.with_agents(**options) for group in groups_of(env).values()]
        must, names = "be false with several groups of agents", [group.path for group in groups]
        check(len(groups) == 1 or not self.recurrent, "recurrent", must, f"true with {names}")
        strange = [name for name in self.groups if name not in names]
        check(not strange, "groups", f"name some of {', '.join(names)}", ", ".join(strange))
        return joined_parts(
            {group.path: self.of_group(group.path)._assemble_group(env, group) for group in groups}
        )

    def of_group(self, name: str) -> TeamOptions:
        """The configuration of a group: this one, or that of ``groups`` with what is set here."""
        if name not in self.groups:
            return self
        algorithm = self.groups[name]
        kind = ALGORITHMS.get(algorithm)
        if kind is None or not issubclass(kind, TeamOptions) or kind.family != self.family:
            fitting = [
                other
                for other, config in ALGORITHMS.items()
                if config.teams and config.family == self.family
            ]
            raise ValueError(
                f"`groups` must name algorithms that learn as {self.name} does "
                f"({', '.join(sorted(fitting))}), got `{algorithm}`"
            )
        defaults, known = options_of(type(self)), options_of(kind).keys() - {"groups"}
        given = {option: getattr(self, option) for option in known & defaults.keys()}
        changed = {o: value for o, value in given.items() if value != defaults[o].default}
        return kind(**changed)

    def _assemble_group(self, env: EnvBase, group: Group) -> Parts:
        parts, keys = self.build(group), EnvKeys.of_group(env, group.action)
        parts.max_grad_norm = self.max_grad_norm
        parts.loss.set_keys(
            action=keys.action, reward=keys.reward, done=keys.done, terminated=keys.terminated
        )
        if self.recurrent:
            self._remember(parts)
        return parts


@dataclass(frozen=True, kw_only=True)
class TeamReplayOptions(TeamOptions, OffPolicyConfig):
    """Options of algorithms for teams that learn from a replay buffer."""

    batch_size: int = 128
    updates_per_frame: float = 1 / 6
    selfplay: float = option(
        0.0,
        "part of the environments in which one group after the other acts as an earlier self; "
        "needs several groups",
        topic="team",
        low=0,
        high=1,
    )
    selfplay_snapshots: int = option(10, "earlier selves that are kept over the run", low=1)
    # Rows are single steps.
    n_steps: int = option(1, has_text=False)
    long_return_weight: float = option(0.0, has_text=False)
    long_return_steps: int = option(16, has_text=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.selfplay == 0:
            check_unused(self, "selfplay_snapshots", mode="selfplay=0", other="selfplay=0.5")

    @property
    def settled(self) -> tuple[str, ...]:
        return (*super().settled, "selfplay", "selfplay_snapshots")

    def assemble(self, env: EnvBase) -> Parts:
        groups = len(env.action_keys)
        plain = groups == 1 or self.priority_alpha is None
        must = f"be none with {groups} groups of agents, whose errors differ"
        check(plain, "priority_alpha", must, self.priority_alpha)
        parts = super().assemble(env)
        if self.selfplay == 0:
            return parts
        rows = env.batch_size.numel()
        enough = int(self.selfplay * rows) >= groups
        must = f"give each of {groups} groups one of the {rows} environments"
        check(enough, "selfplay", must, self.selfplay, "raise num_envs, or selfplay")
        return with_selfplay(parts, share=self.selfplay, snapshots=self.selfplay_snapshots)


@dataclass(frozen=True, kw_only=True)
class TeamCriticOptions(TeamReplayOptions, ActorCriticConfig):
    """Options of algorithms for teams with actors, and critics of what the team does."""

    actor_lr: Rate = 5e-4
    critic_lr: Rate = 5e-4
    critic_sees: Sees = option(
        "all", "agents whose observations and actions an agent's critic reads", topic="team"
    )
    others: Others = option(
        "stored",
        "actions of the other agents where an actor learns: the stored ones, or those of their "
        "policies, which makes each follow the values of all",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.critic_sees == "own":
            check_unused(self, "others", mode="critic_sees=own", other="critic_sees=all")

    @property
    def settled(self) -> tuple[str, ...]:
        return (*super().settled, "critic_sees")

    def build_critic(self, env: Any) -> nn.Module:
        """Make the critics of the group ``env``."""
        networks = self.network_options(self.critic_keys, of="critics")
        return build_team_critic(env, sees=self.critic_sees, num_critics=self.members, **networks)

    def remembers_all(self, name: str) -> bool:
        return name == "critic" and self.critic_sees == "all"

    @property
    def acted_by_others(self) -> Others:
        """Actions of the others, where a critic that sees its own agent needs no copies of rows."""
        return self.others if self.critic_sees == "all" else "policy"
