"""Actor that draws several discrete actions at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor
from torch.distributions import Distribution

from torchrl_elegant.functional import categorical_entropy, categorical_sample, categorical_slope
from torchrl_elegant.modules.categorical import DiscreteForm
from torchrl_elegant.modules.stochastic_actor import Backward, StochasticActor


class MultiCategoricalHead(NamedTuple):
    """Independent choices, written as indices ``[*B, K]`` or as one-hots side by side."""

    log_probs: Tensor  # [*B, K, N], minus infinity where a choice has fewer than N
    places: Tensor  # of the existing choices among the K N
    one_hot: bool

    def sample(self) -> Tensor:
        return self._write(categorical_sample(self.log_probs.detach()))

    def mode(self) -> Tensor:
        return self._write(self.log_probs.detach().argmax(-1))

    def log_prob(self, action: Tensor) -> Tensor:
        return self._taken(self._read(action))

    def score(self, action: Tensor) -> tuple[Tensor, Backward]:
        index = self._read(action)

        def backward(grad: Tensor, grad_entropy: Tensor | None) -> tuple[Tensor, list[Tensor]]:
            share = None if grad_entropy is None else grad_entropy / grad.numel()
            each = grad.unsqueeze(-1).expand(index.shape)
            slope = categorical_slope(self.log_probs, index, each, share)  # [*B, K, N]
            return slope.flatten(-2).index_select(-1, self.places), []

        return self._taken(index), backward

    def entropy(self) -> Tensor:
        return categorical_entropy(self.log_probs).sum(-1)

    def _write(self, index: Tensor) -> Tensor:
        if not self.one_hot:
            return index
        table = torch.zeros(self.log_probs.shape, dtype=torch.int64, device=index.device)
        table.scatter_(-1, index.unsqueeze(-1), 1)
        return table.flatten(-2).index_select(-1, self.places)

    def _taken(self, index: Tensor) -> Tensor:
        return self.log_probs.gather(-1, index.unsqueeze(-1)).squeeze(-1).sum(-1)

    def _read(self, action: Tensor) -> Tensor:
        if not self.one_hot:
            return action
        choices, most = self.log_probs.shape[-2:]
        table = action.new_zeros((*action.shape[:-1], choices * most), dtype=torch.uint8)
        table[..., self.places] = action.to(torch.uint8)
        return table.unflatten(-1, (choices, most)).argmax(-1)


class MultiCategorical(Distribution):
    """A head as a distribution of PyTorch, for TorchRL's losses."""

    def __init__(self, head: MultiCategoricalHead) -> None:
        shape = head.log_probs.shape
        size = head.places.numel() if head.one_hot else shape[-2]
        super().__init__(shape[:-2], torch.Size([size]), validate_args=False)
        self.head = head

    @property
    def mode(self) -> Tensor:
        return self.head.mode()

    deterministic_sample = mode

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        log_probs = self.head.log_probs
        wide = log_probs.expand(*sample_shape, *log_probs.shape)
        return self.head._replace(log_probs=wide).sample()

    def log_prob(self, value: Tensor) -> Tensor:
        log_probs = self.head.log_probs
        wide = log_probs.expand(*value.shape[:-1], *log_probs.shape[-2:])
        return self.head._replace(log_probs=wide).log_prob(value)

    def entropy(self) -> Tensor:
        return self.head.entropy()


class MultiCategoricalActor(StochasticActor):
    """Policy over several independent discrete actions.

    ``log pi(a|s) = sum_k log pi_k(a_k|s)``

    Args:
        observation: shape of each observation entry, by key.
        choices: number of actions of each component.
        form: form of the action, ``"one_hot"`` (blocks side by side) or ``"categorical"`` (an
            index for each component).
        num_cells, activation, hidden_gain: of the perceptron.
        action_key: entry of the action.
        action_mask: entry that allows actions; None: all are allowed.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> actor = MultiCategoricalActor(observation={"observation": (3,)}, choices=(4, 2))
    >>> data = actor(TensorDict({"observation": torch.zeros(5, 3)}, [5]))
    >>> data["action"].shape, data["action"].sum(-1).tolist()
    (torch.Size([5, 6]), [2, 2, 2, 2, 2])
    """

    def __init__(
        self,
        *,
        observation: Mapping[NestedKey, Sequence[int]],
        choices: Sequence[int],
        form: DiscreteForm = "one_hot",
        num_cells: Sequence[int] = (64, 64),
        activation: str = "tanh",
        hidden_gain: float | None = None,
        action_key: NestedKey = "action",
        action_mask: NestedKey | None = None,
    ) -> None:
        choices = tuple(int(count) for count in choices)
        if not choices or min(choices) < 1:
            raise ValueError(f"`choices` must hold numbers of 1 or more, got `{choices}`")
        if form not in ("one_hot", "categorical"):
            raise ValueError(f"`form` must be 'one_hot' or 'categorical', got `{form}`")
        super().__init__(
            observation=observation,
            outputs=sum(choices),
            num_cells=num_cells,
            activation=activation,
            hidden_gain=hidden_gain,
            action_key=action_key,
            action_mask=action_mask,
            sizes=choices,
        )
        self.choices, self.form = choices, form
        present = torch.arange(max(choices)) < torch.tensor(choices).unsqueeze(-1)  # [K, N]
        # Follows from the choices, so it is not saved.
        self.register_buffer("_places", present.flatten().nonzero().squeeze(-1), persistent=False)

    def head_of(self, logits: Tensor) -> MultiCategoricalHead:
        count, most = len(self.choices), max(self.choices)
        table = logits
        if count * most > logits.shape[-1]:
            # An empty place has probability zero.
            table = logits.new_full((*logits.shape[:-1], count * most), -torch.inf)
            table = table.index_copy(-1, self._places, logits)
        log_probs = table.unflatten(-1, (count, most)).log_softmax(-1)
        return MultiCategoricalHead(log_probs, self._places, self.form == "one_hot")

    def get_dist(self, tensordict: TensorDictBase) -> MultiCategorical:
        return MultiCategorical(
            self.head_of(self.output([tensordict.get(key) for key in self.in_keys]))
        )

    def spec_dict(self) -> dict[str, Any]:
        return super().spec_dict() | {
            "choices": list(self.choices),
            "form": self.form,
            "action_mask": self.action_mask,
        }
