"""Updates of all members at once: the loss of one, recorded and computed over stacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from torch import Tensor

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.objectives.common.whole_loss import as_update_loss
from torchrl_elegant.objectives.compiled.loss import Update, record_update
from torchrl_elegant.objectives.compiled.recording import CannotRecord
from torchrl_elegant.objectives.compiled.stacked import StackedCall
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.population.adam import StackedAdam
from torchrl_elegant.trainers.population.rows import Rows

# Members that are computed in one go: the numbers of more leave a processor's cache between two
# operations, which costs more than the calls that are saved.
_TOGETHER = 16


class _Shown:
    """A learner's loss, whose batches go through the learner's scales first."""

    def __init__(self, learner: Learner) -> None:
        self._learner, self._loss = learner, as_update_loss(learner.loss)

    def backward_terms(
        self, tensordict: TensorDictBase, *, actor: bool = True
    ) -> dict[str, Tensor]:
        return self._loss.backward_terms(self._learner.shown(tensordict), actor=actor)


class StackedUpdate:
    """One update of every member: terms, gradients, and the step of its Adam.

    The loss of one learner is recorded over a batch of its own and computed over all rows
    (``StackedCall``). Parameters of members are disjoint, so each member has the gradients that it
    would have alone.

    Args:
        rows: all members.
        recorded: the learner whose loss is recorded.
        batch: an example of a member's batch.
        actor: whether the actor learns.
        compile: compile what was recorded.
        then: called after the step of some members, while their numbers are at hand.
    """

    def __init__(
        self,
        rows: Rows,
        recorded: Learner,
        batch: TensorDictBase,
        *,
        actor: bool,
        compile: bool,
        then: Callable[[slice], None] = lambda members: None,
    ) -> None:
        update = Update(_Shown(recorded), recorded.loss, batch, actor)  # type: ignore[arg-type]
        try:
            recording = record_update(update)
            self._call = StackedCall(recording, rows.stack_of, compile=compile)
        except (CannotRecord, ValueError) as error:
            raise UsageError(
                f"`algorithm` must have a loss that a population can share, got {error}; train its "
                "members one by one"
            ) from error
        self.keys: list[NestedKey] = [
            key for key, used in zip(update.leaves, recording.used, strict=True) if used
        ]
        self._then = then
        self._names, self._written = update.names, len(update.written)
        params = rows.params[rows.learners.index(recorded)]
        places = {id(param): position for position, param in enumerate(params)}
        found = [places[id(param)] for param in update.learns]
        learns = sorted(found)
        self._order = [found.index(position) for position in learns]
        self._parts = [
            (members, StackedAdam(rows, members, learns=learns))
            for members in parts_of(len(rows.learners))
        ]

    def refresh(self) -> None:
        """Read the members' rates anew."""
        for _, adam in self._parts:
            adam.refresh()

    def __call__(
        self, batch: Mapping[NestedKey, Tensor], generators: Sequence[torch.Generator]
    ) -> dict[str, Tensor]:
        """Update all members on batches ``[P, B, ...]``; returns their terms ``[P]``."""
        terms = []
        for members, adam in self._parts:
            given = [batch[key][members] for key in self.keys]
            results = self._call(given, generators[members], members=members)
            count = len(self._names)
            terms.append(results[:count])
            grads = results[count + self._written :]
            adam.step([grads[index] for index in self._order])
            self._then(members)
        joined = [torch.cat(each) for each in zip(*terms, strict=True)]
        return dict(zip(self._names, joined, strict=True))


def parts_of(count: int) -> list[slice]:
    """Members in parts of nearly equal size.

    >>> parts_of(18)
    [slice(0, 9, None), slice(9, 18, None)]
    """
    parts = -(-count // _TOGETHER)
    ends = [count * part // parts for part in range(parts + 1)]
    return [slice(start, end) for start, end in pairwise(ends)]


def stacked(batches: Sequence[TensorDictBase]) -> TensorDictBase:
    """Batches of all members as one, ``[P, ...]``."""
    keys = list(batches[0].keys(True, True))
    found = {key: torch.stack([batch.get(key) for batch in batches]) for key in keys}
    return TensorDict(found, [len(batches), *batches[0].batch_size])


def batches_of(rows: TensorDictBase, places: Tensor) -> Iterator[dict[NestedKey, Tensor]]:
    """Batches ``[P, B, ...]`` of rows ``[P, N]``, at places ``[n, P, B]`` of each member.

    All are gathered at once; each is one piece of memory.
    """
    count, steps = rows.shape
    first = torch.arange(count, device=places.device).unsqueeze(1) * steps
    flat = (places + first).flatten()
    keys = list(rows.keys(True, True))
    columns = []
    for key in keys:
        value = rows.get(key)
        found = value.flatten(0, 1).index_select(0, flat)
        columns.append(found.view(*places.shape, *value.shape[2:]).unbind(0))
    for batch in zip(*columns, strict=True):
        yield dict(zip(keys, batch, strict=True))
