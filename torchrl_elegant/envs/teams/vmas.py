"""`VmasTeams`: the scenarios of VMAS, with time limits told from ends."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Bounded, Categorical, Composite, OneHot, Unbounded

from torchrl_elegant.envs.spaces import DiscreteActions
from torchrl_elegant.envs.teams.drawing import draw_scenes
from torchrl_elegant.envs.teams.groups import Groups, grouped
from torchrl_elegant.envs.teams.merged_reset import ROW_BY_ROW, MergedReset
from torchrl_elegant.envs.teams.vmas_shapes import Scene, recorded_scene
from torchrl_elegant.envs.wrap import SettledEnv

if TYPE_CHECKING:
    from vmas.simulator.scenario import BaseScenario

#: What the end of an episode by `max_steps` is called.
TimeLimit = Literal["truncated", "terminated"]


class VmasTeams(SettledEnv):
    """Teams of agents in `num_envs` copies of a scenario of VMAS, stepped together.

    The keys are TorchRL's: `(group, "observation")`, `(group, "action")` and `(group, "reward")`,
    each with a row for each agent; `done`, `terminated` and `truncated` are those of the whole
    copy. `("<group>", "episode_reward")` sums the rewards of each agent. Continuous actions are in
    [-1, 1]; what lies outside is replaced by the nearest within.

    TorchRL's `VmasEnv` cannot tell time limits from ends, and resets copies one by one. VMAS has
    one random stream for all environments of a process: here each has its own.

    Args:
        scenario: a name, or a scenario of one's own.
        num_envs: copies.
        max_steps: steps after which an episode is over; None for no limit.
        time_limit: `"truncated"` bootstraps at the limit; `"terminated"` calls it an end, as
            BenchMARL does.
        actions: `"continuous"`, or `"discrete"`, of which each scenario has its own choices.
        discrete_actions: how a choice is written, `"one_hot"` or `"categorical"` (an index).
        groups: names of the agents in each group. By default, agents called `<name>_<number>` form
            the group `<name>`; `agent` alone is called `agents`. A group whose agents see or do
            different things is split.
        device: where the simulation runs.
        seed: of its random numbers; None takes one from the operating system.
        scenario_kwargs: arguments of the scenario.

    >>> env = VmasTeams("balance", num_envs=3, seed=0, n_agents=4)
    >>> rows = env.rollout(5)
    >>> rows["agents", "observation"].shape, rows["next", "agents", "reward"].shape
    (torch.Size([3, 5, 4, 16]), torch.Size([3, 5, 4, 1]))
    """

    def __init__(
        self,
        scenario: str | BaseScenario,
        *,
        num_envs: int = 1,
        max_steps: int | None = 100,
        time_limit: TimeLimit = "truncated",
        actions: Literal["continuous", "discrete"] = "continuous",
        discrete_actions: DiscreteActions = "one_hot",
        groups: Groups | None = None,
        device: torch.device | str = "cpu",
        seed: int | None = None,
        **scenario_kwargs: Any,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"`num_envs` must be at least 1, got `{num_envs}`")
        if max_steps is not None and max_steps < 1:
            raise ValueError(f"`max_steps` must be None or at least 1, got `{max_steps}`")
        _check_one_of("time_limit", time_limit, ("truncated", "terminated"))
        _check_one_of("actions", actions, ("continuous", "discrete"))
        _check_one_of("discrete_actions", discrete_actions, ("one_hot", "categorical"))
        made = _scenario(scenario) if isinstance(scenario, str) else scenario
        _check_arguments(made, scenario_kwargs)
        # A scenario may be over as soon as it begins.
        super().__init__(device=device, batch_size=[num_envs], allow_done_after_reset=True)
        self.num_envs, self.max_steps, self.time_limit = num_envs, max_steps, time_limit
        self._one_hot = discrete_actions == "one_hot"
        self._stream = _Stream(seed)
        with self._stream.drawn():
            self._vmas = _environment()(
                made,
                num_envs=num_envs,
                device=self.device,
                continuous_actions=actions == "continuous",
                clamp_actions=True,
                terminated_truncated=True,
                **scenario_kwargs,
            )
        named = isinstance(scenario, str) and scenario not in ROW_BY_ROW
        self._reset_rows = MergedReset(self._vmas) if named else self._reset_each
        names = [agent.name for agent in self._vmas.agents]
        spaces = list(zip(self._vmas.observation_space, self._vmas.action_space, strict=True))
        self.groups = grouped(names, spaces, groups)
        self._members = {
            group: [names.index(name) for name in members] for group, members in self.groups.items()
        }
        self._make_specs()
        counts = torch.zeros(num_envs, 1, dtype=torch.int64, device=self.device)
        self._step_count = counts
        self._episode_reward: dict[str, Tensor] = {}

    @property
    def scenario(self) -> BaseScenario:
        """The scenario of VMAS."""
        return self._vmas.scenario

    def frame_rate(self) -> float:
        """Steps in a second of the simulated world."""
        return 1.0 / float(self._vmas.world.dt)

    def scene(self, row: int = 0) -> Scene:
        """Scene of one row now; `pictures` draws it."""
        return recorded_scene(self._vmas, row)

    def pictures(self, scenes: Sequence[Scene]) -> list[np.ndarray]:
        """Pictures of scenes, `[height, width, 3]`, drawn without a display by Pillow."""
        return draw_scenes(scenes)

    def _make_specs(self) -> None:
        rows = self.num_envs

        def composite(**specs: Any) -> Composite:
            return Composite(specs, shape=(rows,)).to(self.device)

        def of_group(count: int, **specs: Any) -> Composite:
            return Composite(specs, shape=(rows, count))

        observed, acted, rewarded = {}, {}, {}
        self._ranges: dict[str, tuple[Tensor, Tensor]] = {}
        for group, members in self._members.items():
            count, first = len(members), members[0]
            seen = self._vmas.observation_space[first]
            observed[group] = of_group(
                count,
                observation=Unbounded((rows, count, *seen.shape)),
                episode_reward=Unbounded((rows, count, 1)),
            )
            acted[group] = of_group(count, action=self._action_spec(group))
            rewarded[group] = of_group(count, reward=Unbounded((rows, count, 1)))
        largest = torch.iinfo(torch.int64).max
        steps = Bounded(0, largest, (rows, 1), dtype=torch.int64)
        self.observation_spec = composite(**observed, step_count=steps)
        self.action_spec = composite(**acted)
        self.reward_spec = composite(**rewarded)
        names = ("done", "terminated", "truncated")
        self.done_spec = composite(
            **{name: Categorical(2, (rows, 1), dtype=torch.bool) for name in names}
        )
        only = next(iter(self._ranges.values())) if len(self._ranges) == 1 else None
        self.action_low = None if only is None else only[0].cpu().numpy()
        self.action_high = None if only is None else only[1].cpu().numpy()

    def _action_spec(self, group: str) -> Bounded | OneHot | Categorical:
        members = self._members[group]
        shape = self.num_envs, len(members)
        spaces = [self._vmas.action_space[member] for member in members]
        if not self._vmas.continuous_actions:
            choices = spaces[0].n
            if self._one_hot:
                return OneHot(choices, (*shape, choices), dtype=torch.int64)
            return Categorical(choices, shape)
        bounds = [np.stack([getattr(s, side) for s in spaces]) for side in ("low", "high")]
        low, high = (torch.as_tensor(each, device=self.device) for each in bounds)
        self._ranges[group] = low, high
        return Bounded(-1.0, 1.0, (*shape, low.shape[-1]), dtype=torch.float32)

    def _set_seed(self, seed: int | None) -> None:
        self._stream = _Stream(seed)

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDict:
        mask = None if tensordict is None else tensordict.get("_reset", None)
        with self._stream.drawn():
            if mask is None or not self._episode_reward:
                mask = torch.ones_like(self._step_count, dtype=torch.bool)
                self._vmas.reset(return_observations=False)
            else:
                self._reset_rows(mask.view(-1))
            seen, ended, _ = self._vmas.get_from_scenario(
                get_observations=True, get_rewards=False, get_infos=False, get_dones=True
            )
        self._step_count = self._step_count.masked_fill(mask, 0)
        for group, members in self._members.items():
            total = self._episode_reward.get(group)
            if total is None:
                total = torch.zeros(self.num_envs, len(members), 1, device=self.device)
            self._episode_reward[group] = total.masked_fill(mask.unsqueeze(-1), 0.0)
        return self._outcome(seen, ended)

    def _reset_each(self, mask: Tensor) -> None:
        for row in mask.nonzero().view(-1).tolist():
            self._vmas.reset_at(row, return_observations=False)

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        actions: list[Tensor] = [torch.empty(0)] * self._vmas.n_agents
        for group, members in self._members.items():
            action = self._simulated(group, tensordict.get((group, "action")).detach())
            for member, each in zip(members, action.unbind(1), strict=True):
                actions[member] = each
        with self._stream.drawn():
            seen, rewards, ended, _, _ = self._vmas.step(actions)
        self._step_count = self._step_count + 1
        return self._outcome(seen, ended, rewards)

    def _simulated(self, group: str, action: Tensor) -> Tensor:
        """Actions of a group in the simulator's own terms, ``[num_envs, agents, size]``."""
        if not self._vmas.continuous_actions:
            return action.argmax(-1, keepdim=True) if self._one_hot else action.unsqueeze(-1)
        low, high = self._ranges[group]
        return torch.lerp(low, high, (action.clamp(-1.0, 1.0) + 1.0) / 2.0)

    def _outcome(
        self, seen: list[Tensor], ended: Tensor, rewards: list[Tensor] | None = None
    ) -> TensorDict:
        terminated = ended.view(-1, 1)
        truncated = torch.zeros_like(terminated)
        if self.max_steps is not None:
            truncated = self._step_count >= self.max_steps
        done = terminated | truncated
        if self.time_limit == "terminated":
            terminated, truncated = done.clone(), torch.zeros_like(done)
        values: dict[str, Any] = {
            "done": done,
            "terminated": terminated,
            "truncated": truncated,
            "step_count": self._step_count,
        }
        for group, members in self._members.items():
            of_group = {"observation": torch.stack([seen[member] for member in members], 1)}
            if rewards is not None:
                reward = torch.stack([rewards[member].view(-1, 1) for member in members], 1)
                of_group["reward"] = reward
                self._episode_reward[group] = self._episode_reward[group] + reward
            of_group["episode_reward"] = self._episode_reward[group]
            values[group] = TensorDict(of_group, (*self.batch_size, len(members)))
        return TensorDict(values, self.batch_size, device=self.device)


class _Stream:
    """Random numbers of one environment: VMAS draws from one state that belongs to its class."""

    def __init__(self, seed: int | None) -> None:
        seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
        self._state: list[Any] = [
            torch.Generator().manual_seed(seed).get_state(),
            np.random.RandomState(seed).get_state(),
            random.Random(seed).getstate(),
        ]

    @contextmanager
    def drawn(self) -> Iterator[None]:
        """Let VMAS draw from this stream, and leave that of others as it was."""
        shared = _environment().vmas_random_state
        others = list(shared)
        shared[:] = self._state
        try:
            yield
        finally:
            self._state = list(shared)
            shared[:] = others


class VmasScenarios(Mapping[str, Any]):
    """Factories of all scenarios by their names; VMAS is imported when somebody asks."""

    def __getitem__(self, name: str) -> Any:
        if name not in scenario_names():
            raise KeyError(name)
        return partial(VmasTeams, name)

    def __iter__(self) -> Iterator[str]:
        # To list what there is must not fail where VMAS is not installed.
        return iter(scenario_names() if _is_installed() else ())

    def __len__(self) -> int:
        return len(list(iter(self)))


def scenario_names() -> list[str]:
    """Names of the scenarios that VMAS has.

    >>> "navigation" in scenario_names()
    True
    """
    vmas = _imported()
    return [*vmas.scenarios, *vmas.mpe_scenarios, *vmas.debug_scenarios]


def _is_installed() -> bool:
    return importlib.util.find_spec("vmas") is not None


def _imported() -> Any:
    if not _is_installed():
        raise ImportError(
            "a scenario of VMAS needs a package that is not installed: "
            "pip install torchrl_elegant[vmas]"
        )
    import vmas

    return vmas


def _environment() -> Any:
    from vmas.simulator.environment import Environment

    return Environment


def _scenario(name: str) -> BaseScenario:
    names = scenario_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.0)
        raise ValueError(
            f"`scenario` must be one of VMAS, got `{name}`; the nearest: {', '.join(near)}"
        )
    folders = ("", "mpe.", "debug.")
    modules = [f"vmas.scenarios.{folder}{name}" for folder in folders]
    found = next(module for module in modules if importlib.util.find_spec(module) is not None)
    scenario: BaseScenario = importlib.import_module(found).Scenario()
    return scenario


def _check_arguments(scenario: BaseScenario, given: Mapping[str, Any]) -> None:
    """Refuse arguments that the scenario does not read; VMAS only warns of them."""
    bases = [one for one in type(scenario).__mro__ if one.__module__ not in ("abc", "builtins")]
    try:
        source = "".join(map(inspect.getsource, bases))
    except (OSError, TypeError):
        return  # a class that was written into a notebook or a shell
    known = set(re.findall(r"kwargs\.(?:pop|get)\(\s*[\"'](\w+)[\"']", source))
    for name in given.keys() - known if known else ():
        near = ", ".join(difflib.get_close_matches(name, known, n=3, cutoff=0.0))
        raise ValueError(
            f"`{name}` is no argument of the scenario; the nearest: {near}; all: "
            f"{', '.join(sorted(known))}"
        )


def _check_one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"`{name}` must be {' or '.join(map(repr, known))}, got `{value}`")
