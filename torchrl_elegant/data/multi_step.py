"""Transitions of several steps, from batches of single ones."""

from __future__ import annotations

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from torchrl_elegant.data.slices import Carry, Path
from torchrl_elegant.functional import Spans, spans

#: Where a row holds its transition of the longer of two lengths.
AHEAD = "ahead"
STEPS = "steps_to_next_obs"


class MultiStepFold:
    """Turns rows ``(s_t, a_t, r_t, s_{t+1})`` into ``(s_t, a_t, R_t, s_{t+m})``.

    ``R_t = sum_{k < m} gamma^k r_{t+k}`` and ``m``, the entry ``steps_to_next_obs``, is ``n_steps``
    or what is left of the episode, be it terminated or truncated. Consecutive batches go on where
    the last one ended, so a batch may be a single step; a row is given out once its span is known,
    the last of an episode at once. No row comes twice, and none is lost but the unfinished ones
    that ``held`` counts.

    What differs from TorchRL's ``MultiStepTransform``: everything under ``next``, the flags
    included, is that of the span's last step. There the flags stay those of the first, so that a
    span which ends in a termination is bootstrapped from the terminal observation all the same.

    Args:
        gamma: discount factor.
        n_steps: steps of a row.
        ahead_steps: where more than zero, the entry ``ahead`` holds what ``next`` would hold for
            as many steps, its own ``steps_to_next_obs`` included.

    >>> after = {"reward": torch.ones(3, 1), "done": torch.tensor([[False], [False], [True]])}
    >>> rows = TensorDict({"step_count": torch.tensor([[0], [1], [2]]), "next": after}, [3])
    >>> fold = MultiStepFold(gamma=0.5, n_steps=2)
    >>> fold(rows[:2])["next", "reward"].tolist(), fold(rows[2:])["next", "reward"].tolist()
    ([[1.5]], [[1.5], [1.0]])
    """

    def __init__(self, *, gamma: float, n_steps: int, ahead_steps: int = 0) -> None:
        if n_steps < 1:
            raise ValueError(f"`n_steps` must be at least 1, got `{n_steps}`")
        if ahead_steps < 0:
            raise ValueError(f"`ahead_steps` must be 0 or more, got `{ahead_steps}`")
        self.gamma, self.n_steps, self.ahead_steps = gamma, n_steps, ahead_steps
        self._horizon = max(n_steps, ahead_steps)
        self._carry = Carry()  # the last rows of each environment
        self._waiting: Tensor | None = None  # which of them are still to be given out, [E, t]

    @property
    def held(self) -> int:
        """Rows that wait for their span to end."""
        return 0 if self._waiting is None else int(self._waiting.sum())

    def __call__(self, batch: TensorDictBase) -> TensorDict:
        """The rows of ``[*envs, time]`` and before whose spans are known by now, ``[N]``."""
        rows, waiting = self._join(batch)
        reward, done = (rows["next", name].squeeze(-1) for name in ("reward", "done"))
        near = spans(reward, done, gamma=self.gamma, n_steps=self.n_steps)
        far = near
        if self._horizon > self.n_steps:
            far = spans(reward, done, gamma=self.gamma, n_steps=self._horizon)
        at = (waiting & far.complete).nonzero(as_tuple=True)
        self._keep(rows, waiting & ~far.complete)
        out = TensorDict(batch_size=[len(at[0])])
        for key in rows:
            if key[0] != "next":
                out.set(key, rows[key][at])
        out.set("next", _after(rows, near, at))
        out.set(STEPS, near.steps[at])
        if self.ahead_steps:
            if self._horizon > self.ahead_steps:
                far = spans(reward, done, gamma=self.gamma, n_steps=self.ahead_steps)
            out.set(AHEAD, _after(rows, far, at).set(STEPS, far.steps[at]))
        return out

    def _join(self, batch: TensorDictBase) -> tuple[dict[Path, Tensor], Tensor]:
        rows = self._carry.join(batch)
        before = 0 if self._waiting is None else self._waiting.shape[1]
        count, length = rows["next", "done"].shape[:2]
        fresh = torch.ones(count, length - before, dtype=torch.bool, device=batch.device)
        parts = [fresh] if self._waiting is None else [self._waiting, fresh]
        return rows, torch.cat(parts, 1)

    def _keep(self, rows: dict[Path, Tensor], waiting: Tensor) -> None:
        last = self._horizon - 1
        self._carry.keep(rows, last)
        self._waiting = waiting[:, max(0, waiting.shape[1] - last) :]


def _after(rows: dict[Path, Tensor], of: Spans, at: tuple[Tensor, ...]) -> TensorDict:
    """What the spans of the rows ``at`` lead to."""
    env, start = at
    end = start + of.steps[at] - 1
    after = TensorDict(batch_size=[len(start)])
    for path, value in rows.items():
        if path[0] == "next":
            after.set(path[1:], value[env, end])
    return after.set("reward", of.reward[at].unsqueeze(-1))
