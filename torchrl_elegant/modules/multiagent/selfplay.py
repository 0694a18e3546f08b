"""Actors that play against earlier selves in a part of the environments."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn
from torchrl.envs.utils import ExplorationType, exploration_type, set_exploration_type

from torchrl_elegant.modules.multiagent.actors import GroupActors


class SelfPlayActors(GroupActors):
    """``GroupActors`` of which one group acts as an earlier self in a part of the rows.

    Opponents that learn side by side may run in circles: each forgets how to beat what the other no
    longer does. Games against frozen earlier selves keep that in the data (Bansal et al. 2018,
    arXiv:1710.03748, section 4.2). An earlier self is drawn for each row, and another one when its
    episode ends; it takes its best actions. This happens where the policy explores. Elsewhere all
    groups act as they are, or as ``cast`` says; so they do once the policy is loaded from a file.

    Args:
        actors: the actor of each group, by the group's name.
        share: part of the rows, the first ones, in which one group after the other is replaced.
        snapshots: earlier selves that are kept.

    >>> from torchrl_elegant.algorithms import MADDPGConfig
    >>> from torchrl_elegant.envs import make_env
    >>> config = MADDPGConfig(num_cells=(8,), selfplay=0.5, selfplay_snapshots=4)
    >>> policy = config.assemble(make_env("vmas/simple_tag", 4)).policy
    >>> policy.keep()
    >>> policy.kept
    1
    """

    count: Tensor

    def __init__(
        self, actors: Mapping[str, TensorDictModuleBase], *, share: float = 0.0, snapshots: int
    ) -> None:
        super().__init__(actors)
        self.share = share
        each = (deepcopy(self.actors).requires_grad_(False) for _ in range(snapshots))
        self.earlier = nn.ModuleList(each)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        # Number of the earlier self in each row, and the rows of each; not saved.
        self._drawn = torch.zeros(0, dtype=torch.int64)
        self._rows: dict[str, dict[int, Tensor]] = {}
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

    def restart(self, rows: Tensor) -> None:
        """Draw other earlier selves in the ``rows`` ``[*B]`` whose episode ended."""
        super().restart(rows)
        if rows.numel() == len(self._drawn) and bool(rows.any()):
            self._draw(rows.flatten().cpu())

    def _draw(self, rows: Tensor) -> None:
        """Draw the earlier selves of these rows, and note where each of them acts."""
        kept, count = self.kept, int(self.share * len(rows))
        if not kept:
            return
        self._drawn = torch.where(rows, torch.randint(kept, rows.shape), self._drawn)
        for number, name in enumerate(self.actors):
            of = torch.arange(number, count, len(self.actors))
            drawn = self._drawn[of]
            self._rows[name] = {int(i): of[drawn == i] for i in drawn.unique()}

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        results = self.act(*(tensordict.get(key) for key in self.in_keys))
        for key, value in zip(self.out_keys, results, strict=True):
            tensordict.set(key, value)
        return tensordict

    def _acted(self, name: str, actor: Any, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        explores = exploration_type() in (None, ExplorationType.RANDOM)
        if not explores and name in self.cast:
            actor = self._earlier(self.cast[name], name)
        values = super()._acted(name, actor, inputs)
        return self._replaced(values, inputs, name) if explores and self.share else values

    def _replaced(
        self, values: tuple[Tensor, ...], inputs: list[Tensor], name: str
    ) -> tuple[Tensor, ...]:
        """``values``, those of earlier selves in the rows where this group is replaced."""
        rows = inputs[0].shape[0]
        if len(self._drawn) != rows:
            self._drawn, self._rows = torch.zeros(rows, dtype=torch.int64), {}
        if not self._rows:
            self._draw(torch.ones(rows, dtype=torch.bool))
        if not self._rows:
            return values
        replaced = tuple(value.clone() for value in values)
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            for index, of in self._rows[name].items():
                others = super()._acted(
                    name, self._earlier(index, name), [each[of] for each in inputs]
                )
                for value, other in zip(replaced, others, strict=True):
                    value[of] = other
        return replaced

    def _earlier(self, index: int, name: str) -> Any:
        return self.earlier[index].get_submodule(name)

    def spec_dict(self) -> dict[str, Any]:
        """Plain data from which ``from_spec`` builds the same architecture."""
        return super().spec_dict() | {"snapshots": len(self.earlier)}

    def __getstate__(self) -> dict[str, Any]:
        # A copy draws its own.
        return {**self.__dict__, "_drawn": self._drawn[:0], "_rows": {}}
