"""Scales of observations and rewards between stored data and losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensordict import TensorDictBase
from torchrl.objectives import LossModule

from torchrl_elegant.data import AHEAD, Moments, ReturnScale
from torchrl_elegant.data.running_statistics import Gather
from torchrl_elegant.modules import ObservationNorm


class Preparation:
    """Shows losses observations normalised and rewards scaled; stored data stays as it was.

    So every batch is seen in the latest units, however old its rows are, and losses, targets and
    networks know nothing of it. The policy shares ``norm``.

    Args:
        reward_scale: constant factor of all rewards.
        norm: for observations; None leaves them.
        returns: running scale of rewards; None leaves them.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> rows = TensorDict({"next": {"reward": torch.ones(2, 1)}}, [2])
    >>> Preparation(reward_scale=0.5)(rows)["next", "reward"].tolist()
    [[0.5], [0.5]]
    """

    def __init__(
        self,
        *,
        reward_scale: float = 1.0,
        norm: ObservationNorm | None = None,
        returns: ReturnScale | None = None,
    ) -> None:
        self.reward_scale, self.norm, self.returns = reward_scale, norm, returns
        shapes = {} if norm is None else norm.shapes
        self._moments = {key: Moments(shape) for key, shape in shapes.items()}

    @property
    def observes(self) -> bool:
        """Whether it keeps statistics of newly collected data."""
        return bool(self._moments) or self.returns is not None

    def observe(self, batch: TensorDictBase, *, stream: int = 0, gather: Gather) -> None:
        """Take note of new data ``[*envs, time]`` of the environments of ``stream``, once."""
        self.observe_rewards(batch, stream=stream, gather=gather)
        self.observe_states(batch, gather=gather)

    def observe_rewards(self, batch: TensorDictBase, *, stream: int = 0, gather: Gather) -> None:
        """The part of ``observe`` that no policy notices."""
        if self.returns is not None:
            shape = (-1, batch.shape[-1])
            reward, done = (batch.get(("next", key)).reshape(shape) for key in ("reward", "done"))
            self.returns.observe(reward, done, stream=stream, gather=gather)

    def observe_states(self, batch: TensorDictBase, *, gather: Gather) -> None:
        """The part that changes what the policy does at the same observation."""
        for key, moments in self._moments.items():
            moments.add(batch.get(key), gather)
        self._fit()

    def __call__(self, batch: TensorDictBase) -> TensorDictBase:
        """The same rows as a loss should see them; ``batch`` is left as it is."""
        batch = batch.copy()
        after = [batch.get(name) for name in ("next", AHEAD) if name in batch.keys()]  # noqa: SIM118
        self._normalise(batch, *after)
        scale = self.reward_scale * (1.0 if self.returns is None else self.returns.scale)
        for holder in after:
            holder.set("reward", holder.get("reward") * scale)
        return batch

    def states(self, batch: TensorDictBase) -> TensorDictBase:
        """The same rows with their own observations as an actor should see them."""
        batch = batch.copy()
        self._normalise(batch)
        return batch

    def _normalise(self, *holders: TensorDictBase) -> None:
        if self.norm is None:
            return
        for key in self.norm.shapes:
            for holder in holders:
                holder.set(key, self.norm(key, holder.get(key)))

    def state_dict(self) -> dict[str, Any]:
        states = {key: moments.state_dict() for key, moments in self._moments.items()}
        returns = self.returns and self.returns.state_dict()
        return {"observations": states, "returns": returns}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        check_stored(self, state_dict)
        for key, moments in self._moments.items():
            moments.load_state_dict(state_dict["observations"][key])
        if self.returns is not None:
            self.returns.load_state_dict(state_dict["returns"])
        self._fit()

    def _fit(self) -> None:
        for key, moments in self._moments.items():
            assert self.norm is not None
            self.norm.fit(key, moments.mean, moments.variance)


def hand_back_priority(prepared: TensorDictBase, batch: TensorDictBase, loss: LossModule) -> None:
    """Leave in ``batch`` the priority that ``loss`` wrote into what it was shown of it."""
    key = getattr(loss.tensor_keys, "priority", None)
    priority = None if key is None else prepared.get(key, None)
    if priority is not None:
        batch.set(key, priority)


def check_stored(prepare: Preparation | None, state: Mapping[str, Any] | None) -> None:
    """Refuse a state that a run with other normalisation has left."""
    state = state or {"observations": {}, "returns": None}
    norm = None if prepare is None else prepare.norm
    returns = None if prepare is None else prepare.returns
    known = set() if norm is None else set(norm.shapes)
    for name, was, now in (
        ("normalize_observation", set(state["observations"]), known),
        ("normalize_value", state["returns"] is not None, returns is not None),
    ):
        if was != now:
            raise ValueError(
                f"`{name}` must stay {bool(was)} when a run goes on, got `{bool(now)}`"
            )
