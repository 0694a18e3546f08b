"""Transitions of several steps, from batches of single ones."""

from __future__ import annotations

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase, unravel_key
from torch import Tensor

from torchrl_elegant.data.slices import Carry, Path
from torchrl_elegant.functional import Spans, path_of, spans

#: Where a row holds its transition of the longer of two lengths.
AHEAD = "ahead"
STEPS = "steps_to_next_obs"


class MultiStepFold:
    """Turns rows ``(s_t, a_t, r_t, s_{t+1})`` into ``(s_t, a_t, R_t, s_{t+m})``.

    ``R_t = sum_{k < m} gamma^k r_{t+k}`` and ``m``, the entry ``steps_to_next_obs``, is ``n_steps``
    or the number of steps left in the episode, be it terminated or truncated. Each batch goes on
    where the last one ended, so a batch may be a single step. A row is given out once its
    environment has made ``n_steps - 1`` more steps, whether or not its episode ended among them:
    so the number of rows never depends on values, and nothing waits for a device. No row comes
    twice, and none is lost but the last ones, which ``held`` counts.

    Differs from TorchRL's ``MultiStepTransform``: everything under ``next``, the flags included, is
    that of the span's last step. There the flags stay those of the first, so that a span which ends
    in a termination is bootstrapped from the terminal observation all the same.

    Args:
        gamma: discount factor.
        n_steps: steps of a row.
        ahead_steps: where more than zero, the entry ``ahead`` holds what ``next`` would hold for
            as many steps, its own ``steps_to_next_obs`` included.
        reward_key, done_key: entries under ``next``, of shape ``[*envs, time, 1]``.

    >>> after = {"reward": torch.ones(3, 1), "done": torch.tensor([[False], [False], [True]])}
    >>> rows = TensorDict({"step_count": torch.tensor([[0], [1], [2]]), "next": after}, [3])
    >>> fold = MultiStepFold(gamma=0.5, n_steps=2)
    >>> fold(rows)["next", "reward"].tolist(), fold(rows[:1])["next", "reward"].tolist(), fold.held
    ([[1.5], [1.5]], [[1.0]], 1)
    """

    def __init__(
        self,
        *,
        gamma: float,
        n_steps: int,
        ahead_steps: int = 0,
        reward_key: NestedKey = "reward",
        done_key: NestedKey = "done",
    ) -> None:
        if n_steps < 1:
            raise ValueError(f"`n_steps` must be at least 1, got `{n_steps}`")
        if ahead_steps < 0:
            raise ValueError(f"`ahead_steps` must be 0 or more, got `{ahead_steps}`")
        self.gamma, self.n_steps, self.ahead_steps = gamma, n_steps, ahead_steps
        self._reward = path_of(unravel_key(("next", reward_key)))
        self._done = path_of(unravel_key(("next", done_key)))
        self._waits = max(n_steps, ahead_steps) - 1
        self._carry, self._held = Carry(), 0

    def restart(self) -> None:
        """Drop the rows that wait: the steps that come next begin new episodes."""
        self._carry, self._held = Carry(), 0

    @property
    def held(self) -> int:
        """Rows that wait for later steps."""
        return self._held

    def __call__(self, batch: TensorDictBase) -> TensorDict:
        """Return the rows ``[N]`` whose later steps have come with ``batch``, ``[*envs, time]``."""
        rows = self._carry.join(batch)
        envs, length = rows[self._done].shape[:2]
        known = max(0, length - self._waits)
        self._carry.keep(rows, self._waits)
        self._held = envs * (length - known)
        out = TensorDict(batch_size=[envs * known])
        for path, value in rows.items():
            if path[0] != "next":
                out.set(path, value[:, :known].flatten(0, 1))
        after, steps = self._after(rows, known, self.n_steps)
        out.set("next", after).set(STEPS, steps)
        if self.ahead_steps:
            after, steps = self._after(rows, known, self.ahead_steps)
            out.set(AHEAD, after.set(STEPS, steps))
        return out

    def _after(
        self, rows: dict[Path, Tensor], known: int, n_steps: int
    ) -> tuple[TensorDict, Tensor]:
        """``next`` of the first ``known`` rows of each environment for ``n_steps`` steps, and the
        length of each span."""
        reward, done = rows[self._reward].squeeze(-1), rows[self._done].squeeze(-1)
        of: Spans = spans(reward, done, gamma=self.gamma, n_steps=n_steps)
        steps = of.steps[:, :known]
        place = torch.arange(done.numel(), device=done.device).view(done.shape)
        last = (place[:, :known] + steps - 1).flatten()
        after = TensorDict(batch_size=[len(last)])
        for path, value in rows.items():
            if path == self._reward:
                after.set(path[1:], of.reward[:, :known].reshape(-1, 1))
            elif path[0] == "next":
                after.set(path[1:], value.flatten(0, 1).index_select(0, last))
        return after, steps.flatten()
