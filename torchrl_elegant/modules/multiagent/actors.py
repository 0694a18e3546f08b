"""Actors of several groups as one policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn

from torchrl_elegant.modules.direct_calls import RestartsRows


class GroupActors(TensorDictModuleBase):
    """Actors of several groups, which act in one call.

    Args:
        actors: the actor of each group, by the group's name.

    >>> import torch
    >>> from tensordict import TensorDict
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
    >>> seen = {name: {"observation": torch.zeros(5, 2, 3)} for name in actors}
    >>> data = GroupActors(actors)(TensorDict(seen, [5]))
    >>> data["red", "action"].shape, data["blue", "action"].shape
    (torch.Size([5, 2, 1]), torch.Size([5, 2, 1]))
    """

    def __init__(self, actors: Mapping[str, TensorDictModuleBase]) -> None:
        super().__init__()
        self.actors = nn.ModuleDict(actors)
        each = list(actors.values())
        self.in_keys = list(dict.fromkeys(key for actor in each for key in actor.in_keys))
        self.out_keys = [key for actor in each for key in actor.out_keys]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        for actor in self._each():
            tensordict = actor(tensordict)
        return tensordict

    def act(self, *observation: Tensor) -> tuple[Tensor, ...]:
        """Values of ``out_keys`` at observations in the order of ``in_keys``."""
        seen, written = dict(zip(self.in_keys, observation, strict=True)), list[Tensor]()
        for name, actor in zip(self.actors, self._each(), strict=True):
            written += self._acted(name, actor, [seen[key] for key in actor.in_keys])
        return tuple(written)

    def _acted(self, name: str, actor: Any, inputs: list[Tensor]) -> tuple[Tensor, ...]:
        """Outputs of the actor of the group ``name``."""
        result = actor.act(*inputs)
        return result if isinstance(result, tuple) else (result,)

    def restart(self, rows: Tensor) -> None:
        """Restart what actors carry, in the ``rows`` ``[*B]`` whose episode ended."""
        for actor in self._each():
            if isinstance(actor, RestartsRows):
                actor.restart(rows)

    def spec_dict(self) -> dict[str, Any]:
        """Plain data from which ``from_spec`` builds the same architecture."""
        each = {
            name: {"builder": type(actor).__name__, "spec": actor.spec_dict()}
            for name, actor in zip(self.actors, self._each(), strict=True)
        }
        return {"actors": each}

    def _each(self) -> Iterable[Any]:
        return self.actors.values()

    @classmethod
    def from_spec(
        cls,
        builders: Mapping[str, Callable[..., TensorDictModuleBase]],
        *,
        actors: Mapping[str, Mapping[str, Any]],
        **own: Any,
    ) -> GroupActors:
        """Build what ``spec_dict`` describes."""
        made = {name: builders[one["builder"]](**one["spec"]) for name, one in actors.items()}
        return cls(made, **own)
