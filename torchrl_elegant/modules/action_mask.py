"""Action masks: entries of an observation that say which discrete actions are allowed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey
from torch import Tensor, nn

from torchrl_elegant.functional import allowed_choices
from torchrl_elegant.modules.inputs import Inputs

#: Value of a forbidden action: far below any other, and finite also as a sum over many members.
FORBIDDEN_VALUE = torch.finfo(torch.float32).min / 1024


class MaskedNet(nn.Module):
    """Network over discrete actions that gives ``fill`` for those that are forbidden.

    The last inputs are the mask: true, or any number but 0, where an action is allowed. Where all
    are forbidden, as at the end of a game, all count as allowed.

    Args:
        net: maps ``[*B, features]`` to ``[..., *B, sum(sizes)]``.
        sizes: number of actions of each choice.
        fill: output for forbidden actions.
        hidden: number of the last inputs that ``net`` does not see.

    >>> net = MaskedNet(nn.Linear(3, 2), sizes=(2,), fill=-math.inf, hidden=2)
    >>> net(torch.tensor([[0.0, 0.0, 0.0, 1.0, 0.0]]))[0, 1].item()
    -inf
    """

    def __init__(self, net: Any, *, sizes: Sequence[int], fill: float, hidden: int) -> None:
        super().__init__()
        self.net, self.sizes, self.fill, self.hidden = net, tuple(sizes), fill, hidden

    @property
    def activation(self) -> str:
        """Activation of the network inside."""
        return self.net.activation

    def forward(self, x: Tensor) -> Tensor:
        seen = x[..., : x.shape[-1] - self.hidden]
        allowed = allowed_choices(x[..., -sum(self.sizes) :], self.sizes)
        return self.net(seen).masked_fill(~allowed, self.fill)


class MaskedValues(nn.Module):
    """Values of actions, ``FORBIDDEN_VALUE`` for those that a mask forbids.

    >>> MaskedValues()(torch.zeros(1, 2), torch.tensor([[1, 0]])).tolist()[0][0]
    0.0
    """

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        allowed = allowed_choices(mask, values.shape[-1:])
        return values.masked_fill(~allowed, FORBIDDEN_VALUE)


def network_over(
    observation: Mapping[NestedKey, Sequence[int]],
    make: Callable[[int], Any],
    *,
    action_mask: NestedKey | None = None,
    sizes: Sequence[int] = (),
    fill: float = -math.inf,
    ids: int = 0,
) -> tuple[Inputs, Any]:
    """Make the inputs of a network and, by ``make(features)``, the network.

    Args:
        observation: shape of each entry that the network sees, by key.
        make: takes the number of features that it sees.
        action_mask: entry of the mask, which comes last; None: all actions are allowed.
        sizes: number of actions of each choice.
        fill: output for forbidden actions.
        ids: as for ``Inputs``; not with a mask.

    >>> seen = {"observation": (3,)}
    >>> inputs, net = network_over(seen, lambda n: nn.Linear(n, 2), action_mask="mask", sizes=(2,))
    >>> inputs.keys, net.net.in_features
    (['observation', 'mask'], 3)
    """
    if action_mask is None:
        inputs = Inputs(observation, ids=ids)
        return inputs, make(inputs.features)
    if ids:
        raise ValueError(
            f"`agent_id` must be False with an action mask ({action_mask!r}), got `True`; the mask "
            "must come last among the inputs"
        )
    count = sum(sizes)
    others = {key: shape for key, shape in observation.items() if key != action_mask}
    inputs = Inputs({**others, action_mask: (count,)})
    hidden = 0 if action_mask in observation else count
    net = make(inputs.features - hidden)
    return inputs, MaskedNet(net, sizes=sizes, fill=fill, hidden=hidden)
