"""Actors that play against earlier selves in a part of the environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torchrl.envs.utils import ExplorationType, exploration_type

from torchrl_elegant.modules.multiagent.actors import GroupActors


class SelfPlayActors(GroupActors):
    """``GroupActors`` of which one group acts as an earlier self in a part of the rows.

    Opponents that learn side by side may run in circles: each forgets how to beat what the other no
    longer does. Games against frozen earlier selves keep that in the data (Heinrich et al. 2015,
    "Fictitious self-play in extensive-form games"; Bansal et al. 2018, arXiv:1710.03748, section
    4.2). It does so where it explores; elsewhere all groups act as they are, or as ``cast`` says.

    Args:
        actors: the actor of each group, by the group's name.
        share: part of the rows, the first ones, in which one group after the other is replaced.
        snapshots: earlier selves that are kept.

    >>> from torchrl_elegant.modules import DeterministicActor
    >>> actors = {
    ...     name: DeterministicActor(
    ...         observation={(name, "observation"): (3,)},
    ...         low=[-1.0],
    ...         high=[1.0],
    ...         action_key=(name, "action"),
    ...     )
    ...     for name in ("red", "blue")
    ... }
    >>> policy = SelfPlayActors(actors, share=0.5, snapshots=4)
    >>> policy.keep()
    >>> policy.kept
    1
    """

    count: Tensor
    drawn: Tensor

    def __init__(
        self, actors: Mapping[str, TensorDictModuleBase], *, share: float, snapshots: int
    ) -> None:
        super().__init__(actors)
        self.share = share
        each = (deepcopy(self.actors).requires_grad_(False) for _ in range(snapshots))
        self.earlier = nn.ModuleList(each)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("drawn", torch.zeros((), dtype=torch.int64))
        #: Snapshot that acts for a group outside of training; itself unless named here.
        self.cast: dict[str, int] = {}

    @property
    def kept(self) -> int:
        """Earlier selves that are there."""
        return int(self.count)

    @torch.no_grad()
    def keep(self) -> None:
        """Keep the groups as they are now, while there is a place."""
        if self.kept == len(self.earlier):
            return
        self.earlier[self.kept].load_state_dict(self.actors.state_dict())
        self.count += 1

    def draw(self) -> None:
        """Draw the earlier selves to play against from now on."""
        if self.kept:
            self.drawn.copy_(torch.randint(self.kept, ()))

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        results = self.act(*(tensordict.get(key) for key in self.in_keys))
        for key, value in zip(self.out_keys, results, strict=True):
            tensordict.set(key, value)
        return tensordict

    def act(self, *observation: Tensor) -> tuple[Tensor, ...]:
        """Values of ``out_keys`` at observations ``[rows, ...]`` in the order of ``in_keys``."""
        seen = dict(zip(self.in_keys, observation, strict=True))
        explores = exploration_type() in (None, ExplorationType.RANDOM)
        written: list[Tensor] = []
        for number, (name, actor) in enumerate(zip(self.actors, self._each(), strict=True)):
            if not explores and name in self.cast:
                actor = self._earlier(self.cast[name], name)
            inputs = [seen[key] for key in actor.in_keys]
            result = actor.act(*inputs)
            values = result if isinstance(result, tuple) else (result,)
            if explores and self.share and self.kept:
                values = self._replaced(values, inputs, name, number)
            written += values
        return tuple(written)

    def _replaced(
        self, values: tuple[Tensor, ...], inputs: list[Tensor], name: str, number: int
    ) -> tuple[Tensor, ...]:
        """``values``, those of an earlier self in the rows where this group is replaced."""
        rows = slice(number, int(self.share * inputs[0].shape[0]), len(self.actors))
        if not len(inputs[0][rows]):
            return values
        result = self._earlier(int(self.drawn), name).act(*(each[rows] for each in inputs))
        others = result if isinstance(result, tuple) else (result,)
        replaced = tuple(value.clone() for value in values)
        for value, other in zip(replaced, others, strict=True):
            value[rows] = other
        return replaced

    def _earlier(self, index: int, name: str) -> Any:
        return self.earlier[index].get_submodule(name)

    def spec_dict(self) -> dict[str, Any]:
        """Plain data from which ``from_spec`` builds the same architecture."""
        own = {"share": self.share, "snapshots": len(self.earlier)}
        return super().spec_dict() | own

    @classmethod
    def from_spec(
        cls,
        builders: Mapping[str, Callable[..., TensorDictModuleBase]],
        *,
        actors: Mapping[str, Mapping[str, Any]],
        share: float = 0.0,
        snapshots: int = 1,
    ) -> SelfPlayActors:
        """Build what ``spec_dict`` describes."""
        made = {name: builders[one["builder"]](**one["spec"]) for name, one in actors.items()}
        return cls(made, share=share, snapshots=snapshots)
