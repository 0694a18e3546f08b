"""Off-policy members: each fills a replay buffer of its own and learns from draws of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from torch import Tensor
from torchrl.envs import EnvBase

from torchrl_elegant.algorithms import OffPolicyConfig
from torchrl_elegant.config.machine import require_memory
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.objectives import LeanSoftUpdate
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.off_policy import row_keys
from torchrl_elegant.trainers.population.members import Members
from torchrl_elegant.trainers.population.update import batches_of, stacked

# Updates whose rows are drawn at once, as the source of a run alone hands them over.
_CHUNK = 64


class StackedRows:
    """Replay buffers of P members, of which all hold as many rows.

    Args:
        size: rows of each member; the oldest make room.

    >>> buffers = StackedRows(size=4)
    >>> buffers.extend(TensorDict({"x": torch.arange(6.0).view(2, 3)}, [2, 3]))
    >>> len(buffers), buffers.rows["x"][1, :3].tolist()
    (3, [3.0, 4.0, 5.0])
    """

    def __init__(self, *, size: int) -> None:
        self._size, self._next, self._held = size, 0, 0
        self._rows: TensorDictBase | None = None

    def __len__(self) -> int:
        return self._held

    def extend(self, rows: TensorDictBase) -> None:
        """Add rows ``[P, n]``."""
        if self._rows is None:
            shape = (rows.shape[0], self._size)
            needed = rows[:, 0].bytes() * self._size
            given = f"{self._size} rows in each of {shape[0]} members"
            require_memory("buffer_size", needed, given, "lower buffer_size")
            room = {key: _room(shape, value) for key, value in rows.items(True, True)}
            self._rows = TensorDict(room, shape)
        count = rows.shape[1]
        places = (self._next + torch.arange(count, device=rows.device)) % self._size
        self._rows[:, places] = rows
        self._next = (self._next + count) % self._size
        self._held = min(self._held + count, self._size)

    @property
    def rows(self) -> TensorDictBase:
        """All room, ``[P, size]``; the first ``len(self)`` rows of each member are filled."""
        assert self._rows is not None
        return self._rows


def _room(shape: tuple[int, int], like: Tensor) -> Tensor:
    return torch.empty(*shape, *like.shape[2:], dtype=like.dtype, device=like.device)


class OffPolicyMembers(Members):
    """Members that learn from replay buffers, as ``train_off_policy`` does.

    The arguments are those of ``Members``.
    """

    own = frozenset(
        {
            *("actor_lr", "critic_lr", "alpha_lr", "gamma", "tau", "alpha"),
            *("target_entropy", "hidden_gain"),
        }
    )

    def __init__(
        self,
        learners: Any,
        generators: Any,
        env: EnvBase,
        *,
        configs: Sequence[OffPolicyConfig],
        **others: Any,
    ) -> None:
        _check(configs[0], learners[0].target_updater)
        super().__init__(learners, generators, env, configs=configs, **others)
        first = configs[0]
        self._batch_size, self._warmup = first.batch_size, first.warmup
        self._keys = row_keys(self.learners[0])
        # A member never has more rows than it collects.
        self._size = min(first.buffer_size, self.learners[0].ledger.total_frames)
        self._buffers = StackedRows(size=self._size)
        self._targets: dict[int, tuple[list[Tensor], ...]] = {}
        self._actions = env.full_action_spec[: self.envs_each]

    def restart(self, seed: int) -> None:
        super().restart(seed)
        self._buffers = StackedRows(size=self._size)

    def round(self) -> None:
        """Collect once, and make the updates that are due."""
        warm = self.learners[0].ledger.frames < self._warmup
        self.actor.actions = self._actions if warm else None
        parts = []
        for index, part in self.collected():
            parts.append(part.select(*self._keys).reshape(-1))
            if self.learners[index].observes:
                self.learners[index].observe(part)
        self._buffers.extend(stacked(parts))
        self.refresh()
        due = self.learners[0].ledger.due
        for start in range(0, due, _CHUNK):
            self._learn(min(_CHUNK, due - start))
        self.look_after()

    def _learn(self, updates: int) -> None:
        draws = [
            torch.randint(0, len(self._buffers), (updates * self._batch_size,), generator=each)
            for each in self.generators
        ]
        places = torch.stack(draws).view(len(draws), updates, -1).transpose(0, 1)
        for batch in batches_of(self._buffers.rows, places):
            self.update(batch, size=self._batch_size)

    def update(self, batch: Mapping[NestedKey, Tensor], *, size: int) -> dict[str, Tensor]:
        for updater in self._updaters:
            updater.counter += 1
        return super().update(batch, size=size)

    @property
    def _updaters(self) -> list[Any]:
        return [learner.target_updater for learner in self.learners]

    @torch.no_grad()
    def after_step(self, members: slice) -> None:
        """Let the targets of some members follow, each by a step of its own."""
        updaters = self._updaters
        if updaters[0].counter % updaters[0].period:
            return
        if members.start not in self._targets:
            sources, targets = updaters[0].pairs()
            steps = torch.tensor([1.0 - updater.eps for updater in updaters[members]])
            self._targets[members.start] = (
                [self.rows.stack_of(each)[members] for each in targets],
                [self.rows.stack_of(each.detach())[members] for each in sources],
                [steps.to(each).view(-1, *[1] * each.ndim) for each in targets],
            )
        torch._foreach_lerp_(*self._targets[members.start])

    def replace(self, index: int, learner: Learner) -> None:
        super().replace(index, learner)
        self._targets.clear()  # another one may have another step


def _check(config: OffPolicyConfig, updater: Any) -> None:
    """Refuse what members cannot do together."""
    plain = {"priority_alpha": None, "n_steps": 1, "long_return_weight": 0.0}
    plain |= {"normalize_value": False}
    for name, wanted in plain.items():
        given = getattr(config, name)
        if given != wanted:
            told = "none" if wanted is None else wanted
            raise UsageError(
                f"`{name}` must be {told} in a vectorized population of {config.name}, got {given}"
            )
    if config.deterministic or not isinstance(updater, LeanSoftUpdate):
        raise UsageError(
            "`algorithm` must have an actor that samples, and targets that follow softly, in a "
            f"vectorized population, got {config.name}; train its members one by one"
        )
