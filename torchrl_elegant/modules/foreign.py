"""Networks of TorchRL or of users, called as this package's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tensordict import NestedKey, TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn


class NoSpecification(TypeError):
    """A network cannot be built again from plain data."""


class ForeignNetwork(TensorDictModuleBase):
    """Base of adapters around one TensorDict module; losses train ``network`` itself.

    Args:
        network: any TensorDict module.
        shapes: shape of each observation entry that it reads, by key.
    """

    def __init__(
        self, network: TensorDictModuleBase, shapes: Mapping[NestedKey, Sequence[int]]
    ) -> None:
        super().__init__()
        self.network = network
        self.shapes = {key: tuple(shapes[key]) for key in network.in_keys}
        self.in_keys = list(self.shapes)

    def spec_dict(self) -> dict[str, Any]:
        """Refuse: the network's class is not known here."""
        raise NoSpecification(f"{told(self.network)} cannot be built again from plain data")

    def _called(self, observation: Sequence[Tensor]) -> TensorDictBase:
        first, shape = observation[0], self.shapes[self.in_keys[0]]
        batch = first.shape[: first.ndim - len(shape)]
        entries = zip(self.in_keys, observation, strict=True)
        return self.network(TensorDict(dict(entries), batch))


class ForeignActor(ForeignNetwork):
    """Any TensorDict module that writes an action, with the ``act`` of this package's actors.

    Args:
        network: as in TorchRL, such as a ``ProbabilisticActor``.
        shapes: shape of each observation entry that it reads, by key.
        writes: keys of the action, and of its log-probability if that is wanted.
        bounds: least and largest action, for noise that is added to it; None for discrete ones.

    >>> import torch
    >>> from tensordict.nn import TensorDictModule
    >>> linear = torch.nn.Linear(3, 1)
    >>> module = TensorDictModule(linear, in_keys=["observation"], out_keys=["action"])
    >>> actor = ForeignActor(module, {"observation": (3,)}, writes=["action"])
    >>> actor.act(torch.zeros(5, 3)).shape
    torch.Size([5, 1])
    """

    def __init__(
        self,
        network: TensorDictModuleBase,
        shapes: Mapping[NestedKey, Sequence[int]],
        *,
        writes: Sequence[NestedKey],
        bounds: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        super().__init__(network, shapes)
        self.out_keys = list(writes)
        for name, bound in zip(("low", "high"), bounds or (None, None), strict=True):
            self.register_buffer(name, bound, persistent=False)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        acted = self.network(tensordict.select(*self.in_keys))
        for key in self.out_keys:
            tensordict.set(key, acted.get(key))
        return tensordict

    def act(self, *observation: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Values of ``out_keys`` at observations in the order of ``in_keys``."""
        acted = self._called(observation)
        values = tuple(acted.get(key) for key in self.out_keys)
        return values if len(values) > 1 else values[0]

    def clip(self, action: Tensor) -> Tensor:
        """The nearest action within the bounds."""
        return action.clamp(self.low, self.high)


class ForeignQNetwork(ForeignNetwork):
    """Any TensorDict module that writes ``action_value``, as an ``EpsilonGreedyActor`` reads it.

    Args:
        network: as in TorchRL, such as a ``QValueActor``.
        shapes: shape of each observation entry that it reads, by key.
        choices: number of actions.
        form: form of the action, ``"one_hot"`` or ``"categorical"`` (an index).
        action_key: entry of the action.
        action_mask: entry that allows actions, which ``network`` heeds; None: all are allowed.

    >>> import torch
    >>> from tensordict.nn import TensorDictModule
    >>> keys = {"in_keys": ["observation"], "out_keys": ["action_value"]}
    >>> module = TensorDictModule(torch.nn.Linear(3, 2), **keys)
    >>> network = ForeignQNetwork(module, {"observation": (3,)}, choices=2, form="one_hot")
    >>> network.mean_values([torch.zeros(5, 3)]).shape
    torch.Size([5, 2])
    """

    def __init__(
        self,
        network: TensorDictModuleBase,
        shapes: Mapping[NestedKey, Sequence[int]],
        *,
        choices: int,
        form: str,
        action_key: NestedKey = "action",
        action_mask: NestedKey | None = None,
    ) -> None:
        super().__init__(network, shapes)
        self.choices, self.action_space, self.out_keys = choices, form, [action_key]
        self.action_mask = action_mask

    def mean_values(self, observation: Sequence[Tensor]) -> Tensor:
        """Value of every action, ``[*B, n]``."""
        return self._called(observation).get("action_value")


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module, and each of its parts, into evaluation mode for a while.

    >>> import torch
    >>> layer = torch.nn.Dropout()
    >>> with evaluating(layer):
    ...     inside = layer.training
    >>> inside, layer.training
    (False, True)
    """
    modes = {part: part.training for part in module.modules()}
    try:
        module.eval()
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def trained(network: Any) -> Any:
    """The network that a loss trains: the one inside an adapter, or the network itself.

    >>> import torch
    >>> linear = torch.nn.Linear(3, 1)
    >>> trained(linear) is linear
    True
    """
    return network.network if isinstance(network, ForeignNetwork) else network


def told(module: Any) -> str:
    """Class and keys of a module, for errors.

    >>> told(3)
    '`int`'
    """
    name = f"`{type(module).__name__}`"
    if not isinstance(module, TensorDictModuleBase):
        return name
    return f"{name} (reads {list(module.in_keys)}, writes {list(module.out_keys)})"
