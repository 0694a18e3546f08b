"""`PettingZooTeams`: parallel environments of PettingZoo, several copies in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from tensordict import NestedKey, TensorDict, TensorDictBase, unravel_key
from torchrl.data import Bounded, Categorical, Composite, TensorSpec, Unbounded

from torchrl_elegant.config.machine import within_memory
from torchrl_elegant.envs.gymnasium import sub_seeds
from torchrl_elegant.envs.spaces import (
    DiscreteActions,
    ObservationLeaf,
    action_codec,
    observation_leaves,
)
from torchrl_elegant.envs.teams.groups import Groups, grouped
from torchrl_elegant.envs.teams.pettingzoo_tasks import make_task, task_names
from torchrl_elegant.envs.wrap import SettledEnv

#: Agents that end before the others: an error, or agents that see zeros and earn nothing.
EarlyEnds = Literal["refuse", "mask"]


class PettingZooTeams(SettledEnv):
    """Teams of agents in `num_envs` copies of a parallel environment of PettingZoo.

    The keys are TorchRL's: `(group, "observation")`, `(group, "action")` and `(group, "reward")`,
    each with a row for each agent; `done`, `terminated` and `truncated` are those of the whole
    copy. `(group, "episode_reward")` sums the rewards of each agent. Continuous actions are in
    [-1, 1]; what lies outside is replaced by the nearest within.

    An episode is over when all agents have ended. It is `terminated` if those that end last
    terminate, `truncated` if one of them is cut off. An agent that ends earlier is an error, unless
    `early_ends="mask"`: then its observations and rewards are zeros until the others have ended,
    what it does is ignored, and `(group, "mask")` is False for it.

    TorchRL's `PettingZooWrapper` ends an episode with its first agent. With `done_on_any=False`, an
    episode in which some agents terminate and others are cut off at once is `done` and neither. It
    steps one copy, for several times the time (`benchmarks/pettingzoo_steps.py`).

    Args:
        task: `<module>:<environment>`, an id in PettingZoo's registry, or a callable that returns a
            parallel environment.
        num_envs: copies.
        discrete_actions: how a choice is written, `"one_hot"` or `"categorical"` (an index).
        early_ends: `"refuse"` or `"mask"` agents that end before the others.
        groups: names of the agents in each group. By default, agents called `<name>_<number>` form
            the group `<name>`; `agent` alone is called `agents`. A group whose agents see or do
            different things is split.
        device: of the TensorDicts; the simulators stay in host memory.
        seed: each copy gets its own, derived from it; None lets each choose.
        task_kwargs: arguments of the environment.

    >>> env = PettingZooTeams("mpe2:simple_spread_v3", num_envs=2, seed=0, max_cycles=4)
    >>> rows = env.rollout(9)
    >>> rows["agents", "observation"].shape, rows["next", "truncated"].sum().item()
    (torch.Size([2, 4, 3, 18]), 2)
    """

    def __init__(
        self,
        task: str | Callable[..., Any],
        *,
        num_envs: int = 1,
        discrete_actions: DiscreteActions = "one_hot",
        early_ends: EarlyEnds = "refuse",
        groups: Groups | None = None,
        device: torch.device | str = "cpu",
        seed: int | None = None,
        **task_kwargs: Any,
    ) -> None:
        _check(num_envs, discrete_actions, early_ends)
        super().__init__(device=device, batch_size=[num_envs])
        self.num_envs, self._masks = num_envs, early_ends == "mask"
        make = partial(make_task, task) if isinstance(task, str) else partial(_called, task)
        self._envs: list[Any] = []
        try:
            for each in within_memory("num_envs", [make] * num_envs):
                self._envs.append(_checked(each(task_kwargs), self._envs))
            self.name = str(self._envs[0].metadata.get("name", type(self._envs[0]).__name__))
            self._prepare(discrete_actions, groups)
        except BaseException:
            self.close()
            raise
        self._set_seed(seed)

    def _prepare(self, discrete_actions: DiscreteActions, groups: Groups | None) -> None:
        env = self._envs[0]
        names = [*env.possible_agents]
        pairs = [(env.observation_space(name), env.action_space(name)) for name in names]
        self.groups = grouped(names, pairs, groups)
        of = dict(zip(names, pairs, strict=True))
        self._codecs = {
            name: action_codec(acted, discrete_actions=discrete_actions, env_name=self.name)
            for name, (_, acted) in of.items()
        }
        self._leaves = {
            group: _leaves(of[members[0]][0], self.name) for group, members in self.groups.items()
        }
        self._agents = [
            (name, group, place)
            for group, members in self.groups.items()
            for place, name in enumerate(members)
        ]
        self._make_arrays()
        self._make_specs()
        self._alive: list[list[str]] = [[] for _ in self._envs]

    def _make_arrays(self) -> None:
        rows = self.num_envs
        flags = np.zeros((3, rows, 1), np.bool_)
        self._done, self._terminated, self._truncated = flags
        self._step_count = np.zeros((rows, 1), np.int64)
        self._arrays: dict[NestedKey, np.ndarray] = {
            "done": self._done,
            "terminated": self._terminated,
            "truncated": self._truncated,
            "step_count": self._step_count,
        }
        self._rewards: dict[str, np.ndarray] = {}
        for group, members in self.groups.items():
            count = len(members)
            for leaf in self._leaves[group]:
                shape = (rows, count, *leaf.spec.shape)
                self._arrays[_key(group, leaf.key)] = np.zeros(shape, leaf.dtype)
            self._arrays[group, "episode_reward"] = np.zeros((rows, count, 1), np.float32)
            if self._masks:
                self._arrays[group, "mask"] = np.zeros((rows, count), np.bool_)
            self._rewards[group] = np.zeros((rows, count, 1), np.float32)

    def _make_specs(self) -> None:
        rows = self.num_envs
        observed, acted, rewarded = {}, {}, {}
        for group, members in self.groups.items():
            shape = rows, len(members)
            seen = Composite(episode_reward=Unbounded((*shape, 1)), shape=shape)
            for leaf in self._leaves[group]:
                seen[leaf.key] = leaf.spec.expand(*shape, *leaf.spec.shape)
            if self._masks:
                seen["mask"] = Categorical(2, shape, dtype=torch.bool)
            observed[group] = seen
            spec = self._codecs[members[0]].spec
            action = spec.expand(*shape, *spec.shape)
            acted[group] = Composite(action=action, shape=shape)
            rewarded[group] = Composite(reward=Unbounded((*shape, 1)), shape=shape)
        largest = torch.iinfo(torch.int64).max
        steps = Bounded(0, largest, (rows, 1), dtype=torch.int64)
        self.observation_spec = self._composite(**observed, step_count=steps)
        self.action_spec = self._composite(**acted)
        self.reward_spec = self._composite(**rewarded)
        names = ("done", "terminated", "truncated")
        self.done_spec = self._composite(
            **{name: Categorical(2, (rows, 1), dtype=torch.bool) for name in names}
        )
        only = next(iter(self.groups.values())) if len(self.groups) == 1 else []
        self.action_low, self.action_high = (
            _stacked([getattr(self._codecs[name], side) for name in only])
            for side in ("low", "high")
        )

    def _composite(self, **specs: TensorSpec) -> Composite:
        return Composite(specs, shape=self.batch_size).to(self.device)

    @property
    def simulators(self) -> Sequence[Any]:
        """The copies, as PettingZoo made them."""
        return self._envs

    def frame_rate(self) -> float:
        """Steps in a second of the simulated world."""
        return float(self._envs[0].metadata.get("render_fps") or 10.0)

    def scene(self, row: int = 0) -> np.ndarray:
        """Picture of one row now; the environment must be made with `render_mode="rgb_array"`."""
        drawn: np.ndarray = self._envs[row].render()
        return drawn

    def pictures(self, scenes: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Pictures of scenes, `[height, width, 3]`: scenes are pictures here."""
        return [*scenes]

    def _set_seed(self, seed: int | None) -> None:
        count = self.num_envs
        self._seeds: list[int | None] = (
            [None] * count if seed is None else [*sub_seeds(seed, count)]
        )

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDict:
        mask = None if tensordict is None else tensordict.get("_reset", None)
        rows = range(self.num_envs) if mask is None else mask.view(-1).nonzero().view(-1).tolist()
        for row in rows:
            # A seed is used once: with the same one again, every episode would be the same.
            seed, self._seeds[row] = self._seeds[row], None
            observations, infos = self._envs[row].reset(seed=seed)
            if any("action_mask" in info for info in infos.values()):
                raise _masked_actions(self.name)
            for name, group, place in self._agents:
                self._arrays[group, "episode_reward"][row, place] = 0.0
                if name not in observations and not self._masks:
                    raise self._early(name, "is absent at the start", row)
            for array in (self._done, self._terminated, self._truncated, self._step_count):
                array[row] = 0
            self._alive[row] = [*observations]
            self._show(row, observations)
        return self._snapshot()

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        chosen: dict[str, Any] = {}
        for group, members in self.groups.items():
            action = tensordict.get((group, "action")).detach().cpu().numpy()
            self._rewards[group][:] = 0.0
            for place, name in enumerate(members):
                decoded = self._codecs[name].decode(action[:, place])
                # An environment checks a Python int twice as fast as a numpy one.
                chosen[name] = decoded.tolist() if decoded.ndim == 1 else decoded
        self._step_count += 1
        for row in range(self.num_envs):
            self._step_row(row, {name: chosen[name][row] for name in self._alive[row]})
        np.logical_or(self._terminated, self._truncated, out=self._done)
        outcome = self._snapshot()
        for group, rewards in self._rewards.items():
            outcome.set((group, "reward"), torch.from_numpy(rewards.copy()))
        return outcome

    def _step_row(self, row: int, actions: Mapping[str, Any]) -> None:
        seen, rewards, terminations, truncations, _ = self._envs[row].step(actions)
        alive = [name for name in terminations if not (terminations[name] or truncations[name])]
        ended = [name for name in actions if name not in alive]
        if alive and ended and not self._masks:
            raise self._early(ended[0], "ends", row)
        self._alive[row] = alive
        for name, group, place in self._agents:
            if name in actions and name in rewards:
                self._rewards[group][row, place] = rewards[name]
                self._arrays[group, "episode_reward"][row, place] += rewards[name]
        shown = {*alive, *actions}
        self._show(row, {name: value for name, value in seen.items() if name in shown})
        if not alive:
            self._terminated[row] = all(terminations.get(name, True) for name in ended)
            self._truncated[row] = any(truncations.get(name, False) for name in ended)

    def _show(self, row: int, seen: Mapping[str, Any]) -> None:
        alive = self._alive[row]
        for name, group, place in self._agents:
            for leaf in self._leaves[group]:
                array = self._arrays[_key(group, leaf.key)][row]
                if name in seen:
                    leaf.write(array, place, seen[name])
                else:
                    array[place] = 0
            if self._masks:
                self._arrays[group, "mask"][row, place] = name in alive

    def _early(self, agent: str, does: str, row: int) -> ValueError:
        step = int(self._step_count[row, 0])
        return ValueError(
            f"`early_ends` must be 'mask' for {self.name}, got `refuse`: its agent {agent} {does} "
            f"while others go on, at step {step}; set env_kwargs.early_ends=mask"
        )

    def _snapshot(self) -> TensorDict:
        # The next step overwrites the arrays, so rows are handed out as copies.
        values = {key: torch.from_numpy(array.copy()) for key, array in self._arrays.items()}
        outcome = TensorDict({}, self.batch_size, device=self.device)
        for group, members in self.groups.items():
            outcome.set(group, TensorDict({}, (self.num_envs, len(members)), device=self.device))
        return outcome.update(TensorDict(values, self.batch_size))

    def close(self, *, raise_if_closed: bool = True) -> None:
        """Closes every copy; closing twice does nothing, whatever `raise_if_closed`."""
        self.is_closed = True
        while self._envs:
            self._envs.pop().close()


class PettingZooTasks(Mapping[str, Any]):
    """Factories of all tasks by their names; PettingZoo is imported when somebody asks."""

    def __getitem__(self, name: str) -> Any:
        if ":" not in name and name not in task_names():
            raise KeyError(name)
        return partial(PettingZooTeams, name)

    def __iter__(self) -> Iterator[str]:
        return iter(task_names())

    def __len__(self) -> int:
        return len(task_names())


def _called(make: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    return make(**arguments)


def _checked(env: Any, earlier: Sequence[Any]) -> Any:
    from pettingzoo import ParallelEnv

    if not isinstance(env, ParallelEnv):
        raise TypeError(
            f"`task` must make a pettingzoo.ParallelEnv, got `{type(env).__name__}`; agents that "
            "act in turn are put together by pettingzoo.utils.aec_to_parallel where that is right"
        )
    try:
        agents = [*env.possible_agents]
    except AttributeError:
        raise ValueError(
            f"`task` must tell its `possible_agents`, got `{type(env).__name__}`; a team has a row "
            "for each of them"
        ) from None
    if earlier and agents != [*earlier[0].possible_agents]:
        raise ValueError(f"`task` must make copies with the same agents, got `{agents}` as well")
    return env


def _leaves(space: spaces.Space, name: str) -> list[ObservationLeaf]:
    if isinstance(space, spaces.Dict) and "action_mask" in space.spaces:
        raise _masked_actions(name)
    return observation_leaves(space, env_name=name)


def _masked_actions(name: str) -> ValueError:
    return ValueError(
        f"`task` must let agents choose any action, got {name}, which tells an `action_mask`; "
        "replace forbidden actions in a wrapper around it, and take the mask away"
    )


def _key(group: str, key: NestedKey) -> NestedKey:
    return unravel_key((group, key))


def _stacked(bounds: Sequence[np.ndarray | None]) -> np.ndarray | None:
    found = [each for each in bounds if each is not None]
    return np.stack(found) if found and len(found) == len(bounds) else None


def _check(num_envs: int, discrete_actions: str, early_ends: str) -> None:
    if num_envs < 1:
        raise ValueError(f"`num_envs` must be at least 1, got `{num_envs}`")
    for name, value, known in (
        ("discrete_actions", discrete_actions, ("one_hot", "categorical")),
        ("early_ends", early_ends, ("refuse", "mask")),
    ):
        if value not in known:
            raise ValueError(f"`{name}` must be {' or '.join(map(repr, known))}, got `{value}`")
