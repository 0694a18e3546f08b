"""Policy of a population: each member acts in rows of its own of one batched environment."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.data import Composite
from torchrl.envs.utils import ExplorationType, exploration_type

from torchrl_elegant.objectives.compiled.loss import untouched
from torchrl_elegant.objectives.compiled.recording import record
from torchrl_elegant.objectives.compiled.stacked import StackedCall
from torchrl_elegant.trainers.population.rows import Rows
from torchrl_elegant.trainers.random_streams import streams_kept


class StackedActor(TensorDictModuleBase):
    """The policies of P learners as one policy of ``P * E`` environments.

    Rows ``i * E`` to ``(i + 1) * E`` are those of member ``i``. Collectors and evaluators call it
    as any other policy. It has no parameters of its own: it reads the learners'.

    Args:
        rows: all members.
        generators: each member's random stream.
    """

    def __init__(self, rows: Rows, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        policy = rows.learners[0].policy
        self.in_keys, self.out_keys = list(policy.in_keys), list(policy.out_keys)
        # Past the registry of submodules: collectors would look for parameters in it.
        self.__dict__["_rows"] = rows
        self._generators = generators
        self._calls: dict[tuple[int, bool], StackedCall] = {}
        #: Spec of one member's actions while all act at random; None once they do not.
        self.actions: Composite | None = None

    def act(self, *observation: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Values of ``out_keys`` at observations ``[P * E, ...]`` in the order of ``in_keys``."""
        count = len(self._generators)
        given = [each.unflatten(0, (count, -1)) for each in observation]
        sampled = exploration_type() in (None, ExplorationType.RANDOM)
        if sampled and self.actions is not None:
            return self._random(self.actions)
        form = (given[0].shape[1], sampled)
        if form not in self._calls:
            self._calls[form] = self._record(given)
        call = self._calls[form]
        seen = [each for each, used in zip(given, call.used, strict=True) if used]
        results = call(seen, self._generators if sampled else (), members=slice(0, count))
        several = tuple(each.flatten(0, 1) for each in results)
        return several if len(several) > 1 else several[0]

    def _random(self, actions: Composite) -> Tensor:
        """Actions that each member draws evenly, from its own stream."""
        drawn = []
        with streams_kept():
            for generator in self._generators:
                # Specs draw from the global stream alone.
                torch.set_rng_state(generator.get_state())
                drawn.append(actions.rand().get(self.out_keys[0]))
                generator.set_state(torch.get_rng_state())
        return torch.cat(drawn)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        found = self.act(*(tensordict.get(key) for key in self.in_keys))
        several = found if isinstance(found, tuple) else (found,)
        for key, value in zip(self.out_keys, several, strict=True):
            tensordict.set(key, value)
        return tensordict

    @torch.no_grad()
    def _record(self, given: Sequence[Tensor]) -> StackedCall:
        rows: Rows = self.__dict__["_rows"]
        policy = rows.learners[0].policy

        def act(*observation: Tensor) -> list[Tensor]:
            found = policy.act(*observation)
            return list(found) if isinstance(found, tuple) else [found]

        with untouched(policy, ()):
            recording = record(act, [each[0] for each in given])
        return StackedCall(recording, rows.stack_of)
