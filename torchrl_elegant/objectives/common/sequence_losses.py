"""Losses over sequences: memories are unrolled first, then a loss sees single rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase, unravel_key
from torch import Tensor, nn

from torchrl_elegant.data import MASK, cut_rollout
from torchrl_elegant.data.multi_step import STEPS
from torchrl_elegant.data.running_statistics import Gather
from torchrl_elegant.functional import junk_keys, path_of, spans
from torchrl_elegant.modules import Memory
from torchrl_elegant.objectives.common.update_loss import UpdateDefaults


@runtime_checkable
class ReadsMemories(Protocol):
    """Loss whose networks read what memories write."""

    def memories(self) -> Mapping[NestedKey, Memory]:
        """Memories of the networks that learn, by the entry that each writes."""


class SequenceLoss(UpdateDefaults, nn.Module):
    r"""Loss of networks with memories over sequences, as one loss.

    With the stored state :math:`h_0` each memory runs once over the observations of a row,

    .. math::

        h_{t+1} &= f(o_t, h_t), \qquad h_t = 0 \text{ where an episode begins}  \\
        h'_{t+1} &= f(o'_t, h_{t+1})

    and :math:`h'`, one batched step behind each of them, is what targets see of the next
    observation :math:`o'_t`; so nothing crosses the end of an episode. Delayed copies run over the
    same rows, from the same stored states. The first ``burn_in`` steps warm the states up without
    gradients (Kapturowski et al. 2019, "Recurrent experience replay in distributed reinforcement
    learning", section 3). All other steps become rows of ``loss``, which knows nothing of time.

    Rows are those of ``data.SequenceFold``: entries ``[N, steps, ...]``, of each state the first,
    ``[N, ...]``; ``mask`` may leave steps out. Keys, target updaters and value estimators are set
    on ``loss`` itself.

    A subclass gives ``rows_of`` and ``update_terms``.

    Args:
        loss: over networks that hold a memory (``modules.give_memory``).
        burn_in: steps at the beginning of each row that are not learned from.
    """

    def __init__(self, loss: Any, *, burn_in: int = 0) -> None:
        super().__init__()
        if burn_in < 0:
            raise ValueError(f"`burn_in` must be 0 or more, got `{burn_in}`")
        if not (isinstance(loss, ReadsMemories) and loss.memories()):
            raise ValueError(
                "`loss` must be over networks that hold a memory, got "
                f"`{type(loss).__name__}` over others; put one into each with give_memory"
            )
        self.loss: Any = loss
        self.burn_in = burn_in

    def forward(self, tensordict: TensorDictBase) -> TensorDict:
        return TensorDict(self.update_terms(tensordict), [])

    def connect(self, gather: Gather) -> None:
        """See ``RolloutLoss``."""
        self.loss.connect(gather)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """State of ``loss``: there is no other."""
        return self.loss.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load a state of ``loss``."""
        return self.loss.load_state_dict(state_dict, *args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters of ``loss`` that learn, under its names."""
        return self.loss.named_parameters(*args, **kwargs)

    @property
    def tensor_keys(self) -> Any:
        """Keys of ``loss``."""
        return self.loss.tensor_keys

    @property
    def metric_names(self) -> list[str]:
        return list(self.loss.metric_names)

    def memories(self) -> list[Memory]:
        """Memories of the networks that learn, the actor's first."""
        return list(self.loss.memories().values())

    @property
    def state_keys(self) -> list[NestedKey]:
        """Entries of the states from which the memories start."""
        return [memory.state_key for memory in self.memories()]

    @property
    def in_keys(self) -> list[NestedKey]:
        """Entries that rows must have: in the place of features those that memories read."""
        features = self.loss.memories()
        seen = [key for memory in features.values() for key in memory.inputs.keys]
        written = {*features, *(_after(key) for key in features)}
        own = [key for key in self.loss.in_keys if unravel_key(key) not in written]
        after = [_after(key) for key in (*seen, self.tensor_keys.done)]
        return list(dict.fromkeys([*seen, *self.state_keys, *own, *after]))

    @abstractmethod
    def rows_of(self, batch: TensorDictBase) -> TensorDict:
        """Single rows ``[M]`` of the steps to learn from, with what the memories wrote for each."""

    def _read(self, batch: TensorDictBase, keys: Sequence[NestedKey]) -> dict[NestedKey, Tensor]:
        """Entries of the steps to learn from, without those that memories write."""
        features = self.loss.memories()
        written = {*features, *(_after(key) for key in features)}
        own = [key for key in map(unravel_key, keys) if key not in written]
        found = ((key, batch.get(key, None)) for key in own)
        return {key: value[:, self.burn_in :] for key, value in found if value is not None}

    def _begins(self, batch: TensorDictBase) -> Tensor:
        """Flags ``[N, steps]`` of steps that follow the end of an episode in their row."""
        done = batch.get(_after(self.tensor_keys.done)).flatten(2).all(-1)
        return torch.cat([torch.zeros_like(done[:, :1]), done[:, :-1]], 1)

    def _unrolled(self, memory: Memory, batch: TensorDictBase, begins: Tensor) -> Tensor:
        """States after each step to learn from, ``[N, length, ..., H]``."""
        state, burn_in, gru = batch.get(memory.state_key), self.burn_in, memory.gru
        seen = [batch.get(key) for key in memory.inputs.keys]
        if burn_in:
            with torch.no_grad():
                x = memory.inputs.join([value[:, :burn_in] for value in seen])
                state = gru.unroll(x, state, begins[:, :burn_in])[:, -1]
        x = memory.inputs.join([value[:, burn_in:] for value in seen])
        return gru.unroll(x, state, begins[:, burn_in:])

    def _stepped(self, memory: Memory, batch: TensorDictBase, states: Tensor) -> Tensor:
        after = [batch.get(_after(key))[:, self.burn_in :] for key in memory.inputs.keys]
        with torch.no_grad():
            return memory.gru.step(memory.inputs.join(after), states.detach())


class ReplaySequenceLoss(SequenceLoss):
    """``SequenceLoss`` of a loss of values from targets.

    The critics' memories learn by the critics' terms alone, the actor's by the actor's.

    Args:
        loss, burn_in: see ``SequenceLoss``.
        n_steps: rewards that a target sums before it adds a value, fewer at the end of a row.
        gamma: discount factor of those rewards.

    >>> from torchrl_elegant.modules import QNetwork, give_memory
    >>> from torchrl_elegant.objectives import DQNLoss
    >>> network = QNetwork(observation={"memory": (8,)}, choices=2)
    >>> give_memory(network, Memory(observation={"observation": (3,)}, hidden_size=8))
    >>> loss = ReplaySequenceLoss(DQNLoss(network), burn_in=1)
    >>> flag, seen = torch.zeros(4, 5, 1, dtype=torch.bool), {"observation": torch.zeros(4, 5, 3)}
    >>> after = seen | {"reward": torch.ones(4, 5, 1), "done": flag, "terminated": flag}
    >>> state, action = torch.zeros(4, 8), torch.tensor([0, 1]).expand(4, 5, 2)
    >>> rows = {**seen, "recurrent_state": state, "action": action, "next": after}
    >>> loss.rows_of(TensorDict(rows, [4])).shape, list(loss(TensorDict(rows, [4])).keys())
    (torch.Size([16]), ['loss'])
    """

    def __init__(
        self, loss: Any, *, burn_in: int = 0, n_steps: int = 1, gamma: float = 0.99
    ) -> None:
        super().__init__(loss, burn_in=burn_in)
        if n_steps < 1:
            raise ValueError(f"`n_steps` must be at least 1, got `{n_steps}`")
        self.n_steps, self.gamma = n_steps, gamma

    def rows_of(self, batch: TensorDictBase) -> TensorDict:
        rows, begins = self._read(batch, self.loss.in_keys), self._begins(batch)
        for key, memory in self.loss.memories().items():
            rows[key] = self._unrolled(memory, batch, begins)
            rows[_after(key)] = self._stepped(memory, batch, rows[key])
        with torch.no_grad():
            for key, memory in self.loss.delayed_memories().items():
                states = self._unrolled(memory, batch, begins)
                rows[_after(key)] = self._stepped(memory, batch, states)
        mask = batch.get(MASK, None)
        return _flat(self._ahead(rows), None if mask is None else mask[:, self.burn_in :])

    def update_terms(self, tensordict: TensorDictBase, *, actor: bool = True) -> dict[str, Tensor]:
        rows = self.rows_of(tensordict)
        terms = self.loss.critic_terms(rows)
        if not actor:
            return terms
        for key in self.loss.critic_memories():
            rows.set(key, rows.get(key).detach())
        return terms | self.loss.actor_terms(rows)

    def _ahead(self, rows: dict[NestedKey, Tensor]) -> dict[NestedKey, Tensor]:
        """``rows`` with sums of ``n_steps`` rewards, and what follows the last of those steps."""
        if self.n_steps == 1:
            return rows
        keys = self.tensor_keys
        reward, done = (rows[_after(key)] for key in (keys.reward, keys.done))
        ends = done.flatten(2).all(-1).unsqueeze(1)  # [N, 1, L]
        each = reward.flatten(2).transpose(1, 2)  # [N, K, L]
        of = spans(each, ends.expand_as(each), gamma=self.gamma, n_steps=self.n_steps)
        steps = of.steps[:, 0]  # [N, L]
        last = torch.arange(steps.shape[1], device=steps.device) + steps - 1
        row = torch.arange(len(steps), device=steps.device).unsqueeze(1)
        out = {
            key: value[row, last] if path_of(key)[0] == "next" else value
            for key, value in rows.items()
        }
        out[_after(keys.reward)] = of.reward.transpose(1, 2).reshape(reward.shape)
        out[STEPS] = steps.unsqueeze(-1)
        return out


class RolloutSequenceLoss(SequenceLoss):
    """``SequenceLoss`` of a loss that learns from rollouts.

    Advantages are estimated over whole rollouts, which are then cut into sequences.

    Args:
        loss: see ``SequenceLoss``.
        length: steps of a sequence.

    >>> from torchrl_elegant.modules import GaussianActor, StateValue, give_memory
    >>> from torchrl_elegant.objectives import A2CLoss
    >>> networks = []
    >>> for name, make in (("actor", GaussianActor), ("critic", StateValue)):
    ...     more = {"action_shape": (1,)} if name == "actor" else {}
    ...     networks.append(make(observation={name: (8,)}, **more))
    ...     keys = {"out_key": name, "state_key": f"{name}_state"}
    ...     seen = {"observation": (3,)}
    ...     give_memory(networks[-1], Memory(observation=seen, hidden_size=8, **keys))
    >>> RolloutSequenceLoss(A2CLoss(*networks), length=16).state_keys
    ['actor_state', 'critic_state']
    """

    def __init__(self, loss: Any, *, length: int) -> None:
        super().__init__(loss)
        self.length = length

    def estimate(self, rollout: TensorDictBase) -> TensorDictBase:
        """See ``RolloutLoss``."""
        whole = cut_rollout(rollout, rollout.shape[-1], state_keys=self.state_keys)
        begins, shown = self._begins(whole), rollout.copy()
        with torch.no_grad():
            for key, memory in self.loss.memories().items():
                states = self._unrolled(memory, whole, begins)
                after = self._stepped(memory, whole, states)
                for name, value in ((key, states), (_after(key), after)):
                    shown.set(name, value.reshape(*rollout.shape, *value.shape[2:]))
        return self.loss.estimate(shown)

    def rows_of(self, batch: TensorDictBase) -> TensorDict:
        rows, begins = self._read(batch, self.loss.row_keys), self._begins(batch)
        for key, memory in self.loss.memories().items():
            rows[key] = self._unrolled(memory, batch, begins)
        return _flat(rows, batch.get(MASK, None))

    def rows(self, estimated: TensorDictBase) -> TensorDictBase:
        """See ``RolloutLoss``."""
        kept = estimated.select(*self.row_keys, *junk_keys(estimated))
        return cut_rollout(kept, self.length, state_keys=self.state_keys)

    @property
    def row_keys(self) -> list[NestedKey]:
        """See ``RolloutLoss``."""
        features = self.loss.memories()
        seen = [key for memory in features.values() for key in memory.inputs.keys]
        own = [key for key in map(unravel_key, self.loss.row_keys) if key not in features]
        return list(dict.fromkeys([*seen, *self.state_keys, _after(self.tensor_keys.done), *own]))

    @property
    def report_keys(self) -> Sequence[str]:
        """See ``RolloutLoss``."""
        return self.loss.report_keys

    def update_terms(self, tensordict: TensorDictBase, *, actor: bool = True) -> dict[str, Tensor]:
        return self.loss.update_terms(self.rows_of(tensordict), actor=actor)

    @torch.no_grad()
    def report(self, rows: TensorDictBase) -> dict[str, Tensor]:
        """See ``RolloutLoss``."""
        return self.loss.report(self.rows_of(rows))

    @torch.no_grad()
    def divergence(self, rows: TensorDictBase) -> Tensor:
        """See ``RolloutLoss``."""
        return self.loss.divergence(self.rows_of(rows))


def _after(key: NestedKey) -> NestedKey:
    return unravel_key(("next", key))


def _flat(rows: Mapping[NestedKey, Tensor], mask: Tensor | None) -> TensorDict:
    flat = {key: x.flatten(0, 1) if mask is None else x[mask] for key, x in rows.items()}
    out = TensorDict(batch_size=[len(next(iter(flat.values())))])
    for key, value in flat.items():
        out.set(key, value)
    return out
