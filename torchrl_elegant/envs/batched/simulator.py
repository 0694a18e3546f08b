"""`SimulatorEnv`: base of adapters to simulators that step many rows in one call."""

from __future__ import annotations

import importlib.util
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Bounded, Categorical, OneHot, Unbounded

from torchrl_elegant.envs.batched.rows import RowsEnv
from torchrl_elegant.envs.spaces import DiscreteActions


class Stepped(NamedTuple):
    """Outcome of a step in all rows, before any row is reset; it may be the simulator's own memory.

    `seen` has the entries of an observation by name; the others are `[num_envs]`.
    """

    seen: Mapping[str, Tensor]
    reward: Tensor
    terminated: Tensor
    truncated: Tensor


class Actions(NamedTuple):
    """Actions of a simulator: a box between `low` and `high`, or `choices`."""

    low: np.ndarray | None = None
    high: np.ndarray | None = None
    choices: int | None = None

    @classmethod
    def of(cls, space: Any, bound: float | None = None) -> Actions:
        """Actions of a space of Gymnasium; `bound` is for a box that names none.

        >>> Actions.of(gymnasium.spaces.Discrete(3)).choices
        3
        """
        if isinstance(space, gymnasium.spaces.Discrete):
            return cls(choices=int(space.n))
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
            raise TypeError(
                "the actions must be a box of one dimension or choices, got "
                f"`{space}`; join them in a wrapper of Gymnasium"
            )
        if bound is not None and not (np.isfinite(space.low) & np.isfinite(space.high)).all():
            return cls.within(space.shape[0], bound)
        return cls(low=space.low.astype(np.float32), high=space.high.astype(np.float32))

    @classmethod
    def within(cls, size: int, bound: float) -> Actions:
        """`size` numbers between -`bound` and `bound`, for simulators that name no bounds.

        >>> Actions.within(2, 0.5).high.tolist()
        [0.5, 0.5]
        """
        if not bound > 0:
            raise ValueError(f"`action_bound` must be above 0, got `{bound}`")
        high = np.full(size, bound, np.float32)
        return cls(low=-high, high=high)

    def check(self) -> None:
        """Refuses what no action in [-1, 1] can be scaled to."""
        if self.choices is not None:
            return
        if self.low is None or self.high is None:
            raise ValueError("`actions` must have `low` and `high`, or `choices`")
        flat = self.low.ndim == 1 and self.low.shape == self.high.shape
        if not flat or not np.isfinite([self.low, self.high]).all():
            raise ValueError(
                "`actions` must be one row of finite bounds, got "
                f"low={self.low.tolist()}, high={self.high.tolist()}; name bounds with "
                "`Actions.within(size, bound)`, or `action_bound` where the adapter has it"
            )


class SimulatorEnv(RowsEnv):
    """Rows of a simulator, with the promises of `make_env` kept once for all adapters.

    An adapter calls `_describe` at the end of its construction and has two methods: `_advance`
    steps all rows and gives the true observation after the step, and `_restart` begins new
    episodes in some rows. A third, `_end`, ends what the adapter has started. This class adds the
    rest: actions in [-1, 1], `step_count`, `episode_reward`, the time limit `max_steps`. All
    entries are copied, so none is memory that the simulator writes again. An action outside
    [-1, 1] is taken as the nearest within.
    """

    #: Steps after which an episode is truncated, besides what the simulator truncates itself.
    max_steps: int | None = None
    _is_ended = False

    @abstractmethod
    def _advance(self, action: Tensor) -> Stepped:
        """Steps all rows by `action`, in the simulator's own units."""

    @abstractmethod
    def _restart(self, rows: Tensor) -> Mapping[str, Tensor]:
        """Begins episodes in the rows of a mask `[num_envs]`; returns what all rows see now."""

    def _describe(
        self,
        seen: Mapping[str, Tensor],
        actions: Actions,
        *,
        discrete_actions: DiscreteActions = "one_hot",
    ) -> None:
        """Writes the specs, from an example of what all rows see."""
        actions.check()
        rows = self.num_envs
        self.action_low, self.action_high = actions.low, actions.high
        self._choices = actions.choices
        self._one_hot = discrete_actions == "one_hot"
        if actions.low is not None and actions.high is not None:
            self._low, self._high = (
                torch.as_tensor(x, dtype=torch.float32, device=self.device)
                for x in (actions.low, actions.high)
            )
            action: Any = Bounded(-1.0, 1.0, (rows, len(actions.low)), dtype=torch.float32)
        elif self._one_hot:
            action = OneHot(actions.choices, (rows, actions.choices), dtype=torch.int64)
        else:
            action = Categorical(actions.choices, (rows,))
        entries: Any = {name: Unbounded(x.shape, dtype=x.dtype) for name, x in seen.items()}
        self._write_specs(entries, action)

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDict:
        mask = self._rows_to_reset(tensordict)
        seen = self._own(self._restart(mask.view(-1)))
        self._restart_counts(mask)
        never = torch.zeros_like(mask)
        return self._outcome(seen, never, never.clone())

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        stepped = self._advance(self._simulated(tensordict.get("action").detach()))
        reward = stepped.reward.reshape(-1, 1).to(torch.float32, copy=True)
        terminated = stepped.terminated.reshape(-1, 1).to(torch.bool, copy=True)
        truncated = stepped.truncated.reshape(-1, 1).to(torch.bool, copy=True)
        self._count(reward)
        if self.max_steps is not None:
            truncated = truncated | (self._step_count >= self.max_steps)
        return self._outcome(self._own(stepped.seen), terminated, truncated).set("reward", reward)

    def _simulated(self, action: Tensor) -> Tensor:
        """The action in the simulator's own units; a choice is an index `[num_envs]`."""
        if self._choices is not None:
            return action.to(torch.int64).argmax(-1) if self._one_hot else action
        return torch.lerp(self._low, self._high, (action.clamp(-1.0, 1.0) + 1.0) / 2.0)

    def _end(self) -> None:
        """Ends the simulator, once, when the environment is closed; does nothing by default."""

    def close(self, *, raise_if_closed: bool = True) -> None:
        """Closes the environment, and ends its simulator."""
        super().close(raise_if_closed=raise_if_closed)
        if not self._is_ended:
            self._is_ended = True
            self._end()

    def _own(self, seen: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: entry.clone() for name, entry in seen.items()}


class SimulatorTasks(Mapping[str, Any]):
    """Factories of a simulator's tasks by name; the simulator is imported when somebody asks.

    Args:
        prefix: the part of the name before the slash.
        package: module that must be installed.
        install: the way to install it, for the error.
        names: lists the tasks.
        knows: tells whether there is a task of a name that is not listed; None for no such task.
        make: makes the environment of a task, whose name is its first argument.
    """

    def __init__(
        self,
        prefix: str,
        *,
        package: str,
        install: str,
        names: Callable[[], Iterable[str]],
        make: Callable[..., SimulatorEnv],
        knows: Callable[[str], bool] | None = None,
    ) -> None:
        self._prefix, self._package, self._install = prefix, package, install
        self._names, self._make, self._knows = names, make, knows

    def __getitem__(self, name: str) -> Any:
        if not self._is_installed():
            raise ImportError(
                f"`{self._prefix}/{name}` needs a package that is not installed: {self._install}"
            )
        if name not in self._names() and not (self._knows and self._knows(name)):
            raise KeyError(name)
        return partial(self._make, name)

    def __iter__(self) -> Iterator[str]:
        # To list what there is must not fail where the simulator is not installed.
        return iter(sorted(self._names()) if self._is_installed() else ())

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _is_installed(self) -> bool:
        return importlib.util.find_spec(self._package) is not None


def named_groups(groups: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Tensor]:
    """Groups of observations of a manager-based simulator, under the `names` that they have here.

    >>> sorted(named_groups({"policy": torch.ones(2), "rgb": torch.ones(2)}, {"policy": "seen"}))
    ['rgb', 'seen']
    """
    for name, group in groups.items():
        if not isinstance(group, Tensor):
            raise TypeError(
                f"the observation group `{name}` must be one tensor, got "
                f"`{type(group).__name__}`; set concatenate_terms=True in the task"
            )
    return {names.get(name, name): group for name, group in groups.items()}


def check_steps(max_steps: int | None) -> None:
    """Refuses a time limit below one step."""
    if max_steps is not None and max_steps < 1:
        raise ValueError(f"`max_steps` must be None or at least 1, got `{max_steps}`")
