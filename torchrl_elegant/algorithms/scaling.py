"""Scales of observations and rewards between stored data and losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor

from torchrl_elegant.algorithms.add_ons import AddOn
from torchrl_elegant.data import AHEAD, Moments, ReturnScale
from torchrl_elegant.data.running_statistics import Gather, alone
from torchrl_elegant.functional import junk_of
from torchrl_elegant.modules import ObservationNorm


class Scaling(AddOn):
    """Show losses normalized observations and scaled rewards; stored data stays as it was.

    Every batch is scaled with the newest statistics, however old its rows are. Losses, targets and
    networks know nothing of it. The policy shares ``norm``.

    Args:
        reward_scale: constant factor of all rewards.
        norm: normalizes observations; None leaves them.
        returns: running scale of rewards; None leaves them.
        reward_key, done_key: entries of a step below ``next``.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> rows = TensorDict({"next": {"reward": torch.ones(2, 1)}}, [2])
    >>> Scaling(reward_scale=0.5).show(rows)["next", "reward"].tolist()
    [[0.5], [0.5]]
    """

    name = "scaling"

    def __init__(
        self,
        *,
        reward_scale: float = 1.0,
        norm: ObservationNorm | None = None,
        returns: ReturnScale | None = None,
        reward_key: NestedKey = "reward",
        done_key: NestedKey = "done",
    ) -> None:
        self.reward_scale, self.norm, self.returns = reward_scale, norm, returns
        self.reward_key, self.done_key = reward_key, done_key
        shapes = {} if norm is None else norm.shapes
        self._moments = {key: Moments(shape) for key, shape in shapes.items()}
        self._gather: Gather = alone

    def connect(self, gather: Gather) -> None:
        self._gather = gather

    @property
    def observes(self) -> bool:
        return bool(self._moments) or self.returns is not None

    def observe(self, batch: TensorDictBase, *, stream: int = 0) -> None:
        self._observe_rewards(batch, stream)
        self._observe_states(batch)

    def restart(self) -> None:
        if self.returns is not None:
            self.returns.restart()

    def show_rollout(self, rollout: TensorDictBase) -> TensorDictBase:
        self._observe_rewards(rollout, 0)
        shown = self.show(rollout)
        # Only now: stored log-probabilities are those of the policy as it saw this rollout.
        self._observe_states(rollout)
        return shown

    def show(self, batch: TensorDictBase) -> TensorDictBase:
        batch = batch.copy()
        after = [batch.get(name) for name in ("next", AHEAD) if name in batch.keys()]  # noqa: SIM118
        self._normalize(batch, *after)
        scale = self.reward_scale * (1.0 if self.returns is None else self.returns.scale)
        for holder in after:
            holder.set(self.reward_key, holder.get(self.reward_key) * scale)
        return batch

    def show_states(self, batch: TensorDictBase) -> TensorDictBase:
        """Give rows with their own observations as an actor should see them."""
        batch = batch.copy()
        self._normalize(batch)
        return batch

    def _observe_rewards(self, batch: TensorDictBase, stream: int) -> None:
        if self.returns is not None:
            shape, after = (-1, batch.shape[-1]), batch.get("next")
            reward, done = (after.get(key).reshape(shape) for key in self._step_keys)
            junk = junk_of(batch)
            junk = None if junk is None else junk.reshape(shape)
            self.returns.observe(reward, done, stream=stream, gather=self._gather, without=junk)

    def _observe_states(self, batch: TensorDictBase) -> None:
        for key, moments in self._moments.items():
            moments.add(batch.get(key), self._gather, without=junk_of(batch))
        self._fit()

    @property
    def _step_keys(self) -> tuple[NestedKey, NestedKey]:
        return self.reward_key, self.done_key

    def _normalize(self, *holders: TensorDictBase) -> None:
        if self.norm is None:
            return
        for key in self.norm.shapes:
            for holder in holders:
                holder.set(key, self.norm(key, holder.get(key)))

    def _fit(self) -> None:
        for key, moments in self._moments.items():
            assert self.norm is not None
            self.norm.fit(key, moments.mean, moments.variance)

    def state_dict(self) -> dict[str, Any]:
        states = {key: moments.state_dict() for key, moments in self._moments.items()}
        returns = None if self.returns is None else self.returns.state_dict()
        used = {"normalize_observation": states, "normalize_value": returns}
        needed = [name for name, state in used.items() if state]
        return {"observations": states, "returns": returns, "cannot_be_dropped": needed}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._refuse_other_scales(state_dict or {"observations": {}, "returns": None})
        for key, moments in self._moments.items():
            moments.load_state_dict(state_dict["observations"][key])
        if self.returns is not None:
            self.returns.load_state_dict(state_dict["returns"])
        self._fit()

    def begin_with(self, policy: Mapping[str, Tensor], frames: int) -> None:
        if self.norm is None:
            return
        # By the name that `NormalizedActor` gives it.
        own = {name: policy.get(f"norm.{name}") for name in self.norm.state_dict()}
        try:
            self.norm.load_state_dict(own)
        except RuntimeError as error:
            raise ValueError(
                "`start_from` must hold scales of the entries that actor and critics read, got "
                f"{', '.join(sorted(policy))}; set actor_keys and critic_keys as they were"
            ) from error
        for key, moments in self._moments.items():
            mean, scale = self.norm.scales(key)
            count = torch.tensor(float(frames)).to(mean)
            moments.load_state_dict(
                {"count": count, "mean": mean, "squares": count / scale.square()}
            )

    def _refuse_other_scales(self, state: Mapping[str, Any]) -> None:
        known = set() if self.norm is None else set(self.norm.shapes)
        for name, was, now in (
            ("normalize_observation", set(state["observations"]), known),
            ("normalize_value", state["returns"] is not None, self.returns is not None),
        ):
            if was != now:
                raise ValueError(
                    f"`{name}` must stay {bool(was)} when a run goes on, got `{bool(now)}`"
                )
