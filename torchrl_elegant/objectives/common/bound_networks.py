"""Networks that a loss calls directly, kept at the loss's own parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from operator import is_
from typing import TYPE_CHECKING, Any

from tensordict import TensorDict, TensorDictBase, TensorDictParams
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn

if TYPE_CHECKING:
    from torchrl.objectives import LossModule as _Base
    from typing_extensions import Self
else:
    # Not a LossModule: one gets a `forward` of its own, which would stand before TorchRL's.
    _Base = object


class _Below(MutableMapping[str, Any]):
    """Entries of a flat table whose names begin with ``prefix``, by the rest of the name."""

    def __init__(self, table: MutableMapping[str, Any], prefix: str) -> None:
        self.table, self.prefix = table, prefix

    def __getitem__(self, name: str) -> Any:
        return self.table[self.prefix + name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.table[self.prefix + name] = value

    def __delitem__(self, name: str) -> None:
        del self.table[self.prefix + name]

    def __iter__(self) -> Iterator[str]:
        return (key[len(self.prefix) :] for key in self.table if key.startswith(self.prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Part(nn.Module):
    """A part of a loss's parameters, through which ``functional_call`` walks to a tensor.

    ``TensorDictParams`` gives it a copy instead, and tensors put into that are lost.
    """

    def __init__(self, params: TensorDictParams, prefix: str) -> None:
        super().__init__()
        self.__dict__["_parameters"] = _Below(params._parameters, prefix)
        self.__dict__["_buffers"] = _Below(params._buffers, prefix)
        self.__dict__.update(_parts_of(params, prefix))

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies make parts of their own. TensorDictParams would register this one as a submodule.
        return type(None), ()


def _parts_of(params: TensorDictParams, prefix: str = "") -> dict[str, _Part]:
    names = [*_Below(params._parameters, prefix), *_Below(params._buffers, prefix)]
    parts = {name.split(".")[0] for name in names if "." in name}
    return {part: _Part(params, f"{prefix}{part}.") for part in parts}


class Watched:
    """Parameters of a loss, watched for tensors that stand in for them.

    ``with params.to_module(loss)`` puts another table of tensors into ``TensorDictParams``, and
    takes it out again afterwards. Neither tells the network, so it is asked for at each call.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> params = TensorDictParams(TensorDict({"weight": torch.zeros(2)}))
    >>> watched = Watched(params)
    >>> with TensorDict({"weight": torch.ones(2)}).to_module(params):
    ...     watched.guest()["weight"].tolist()
    [1.0, 1.0]
    >>> watched.guest() is None
    True
    """

    def __init__(self, params: TensorDictParams) -> None:
        self.params, self._table = params, params._param_td
        # A part named as a method of TensorDicts stays hidden: `functional_call` refuses it then.
        parts = _parts_of(params).items()
        params.__dict__.update({k: part for k, part in parts if k not in dir(TensorDictParams)})
        self._leaves, self._registered = leaves_of(self._table), self.registered()

    def registered(self) -> list[Tensor]:
        """Tensors under which optimizers and ``functional_call`` know the parameters."""
        return [*self.params._parameters.values(), *self.params._buffers.values()]

    @property
    def is_registered_anew(self) -> bool:
        """True if other tensors are registered than the loss's own."""
        return not all_same(self.registered(), self._registered)

    def guest(self) -> TensorDictBase | None:
        """Table of tensors that stand in for the loss's own; None where there is none."""
        table = self.params._param_td
        if table is self._table and not self.is_registered_anew:
            return None
        if all_same(leaves_of(table), self._leaves):
            self._table = table  # TensorDict brings back a copy
            return None
        return table

    @property
    def is_consistent(self) -> bool:
        """True if the registered tensors are those of the table."""
        known, table = self._known(), self.params._param_td.flatten_keys(".")
        return all(known.get(key) is value for key, value in table.items())

    def _known(self) -> dict[str, Tensor]:
        return {**self.params._parameters, **self.params._buffers}

    @contextmanager
    def as_registered(self) -> Iterator[None]:
        """Let the registered tensors stand in for the loss's own."""
        known, own = self._known(), self.params._param_td
        self.params._param_td = TensorDict(known, []).unflatten_keys(".").lock_()
        try:
            yield
        finally:
            self.params._param_td = own

    @contextmanager
    def in_place(self, network: TensorDictModuleBase) -> Iterator[None]:
        """Let ``network``, which holds the loss's own tensors, hold those that stand in."""
        guest = self.guest()
        if guest is None:
            yield
            return
        guest.to_module(network, preserve_module_state=False)
        try:
            yield
        finally:
            self._table.to_module(network, preserve_module_state=False)


class Seat:
    """A network, or its double while other tensors stand in for the loss's own.

    The network itself may be a policy that somebody else calls; so guests go into a double.
    """

    def __init__(self, network: TensorDictModuleBase) -> None:
        self.network = network
        self._double: TensorDictModuleBase | None = None

    def bind(self, watched: Watched, table: TensorDictBase) -> None:
        """Make the network hold the tensors of ``table``, as long as nothing stands in."""
        table.to_module(self.network, preserve_module_state=False)
        self._watched = watched
        self._held: list[Tensor] | None = None

    def taken(self, *, detached: bool = False) -> TensorDictModuleBase:
        """The network with the tensors that count now, without gradients if ``detached``."""
        guest = self._watched.guest()
        if guest is None:
            return self.network
        leaves = leaves_of(guest)
        if self._double is None:
            self._double = deepcopy(self.network)
        if self._held is None or not all_same(leaves, self._held):
            table = guest.detach() if detached else guest
            table.to_module(self._double, preserve_module_state=False)
            self._held = leaves
        return self._double


class BoundNetworks(_Base):
    """Part of a loss that binds its networks again after a cast, a move, a copy or an assignment.

    TorchRL keeps parameters apart from their network. Casts and moves replace tensors, and copies
    hold parameters and modules of their own: a network that is called directly would go on reading
    tensors that nothing trains. A subclass gives ``_make_calls`` and ends its constructor with
    ``_connect``.

    ``with params.to_module(loss)`` and vmap over it work as with any of TorchRL's losses, and so
    does ``torch.func.functional_call``, which does not reach the parameters of TorchRL's.
    """

    def _make_calls(self) -> Mapping[str, Any]:
        """Objects through which networks are called, by attribute; each copy makes its own."""
        raise NotImplementedError

    def _bind(self) -> None:
        """Make networks hold the tensors that optimizers and target updaters write."""
        for name in self._calls:
            self.__dict__[name].bind(self)

    def _connect(self) -> None:
        calls = self._make_calls()
        # Past the registry of submodules, where these networks would count twice.
        self.__dict__.update(calls, _calls=tuple(calls))
        self._rebind()

    def _rebind(self) -> None:
        params = {k: m for k, m in self._modules.items() if isinstance(m, TensorDictParams)}
        self.__dict__["_watched"] = {name: Watched(module) for name, module in params.items()}
        self._bind()

    def _has_guests(self, *names: str) -> bool:
        """True if other tensors stand in for those of the networks ``names``."""
        return any(self._watched[f"{name}_params"].guest() is not None for name in names)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        changed = [each for each in self._watched.values() if each.is_registered_anew]
        if not changed:
            return super().__call__(*args, **kwargs)
        if any(each.is_consistent for each in changed):
            self._rebind()  # an entry of the parameters was set
        with ExitStack() as stack:
            for each in self._watched.values():
                if not each.is_consistent:
                    stack.enter_context(each.as_registered())
            return super().__call__(*args, **kwargs)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        if remove_duplicate:
            return super().named_parameters(prefix, recurse)
        # `functional_call` asks for tied tensors, which TorchRL's method cannot list.
        return nn.Module.named_parameters(self, prefix, recurse, remove_duplicate=False)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name.endswith("_network_params") and "_calls" in self.__dict__:
            self._rebind()

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        out = super()._apply(fn)
        self._rebind()
        return out

    def _make_vmap(self) -> None:
        self._rebind()

    def __getstate__(self) -> dict[str, Any]:
        own = {"_calls", "_watched", *self._calls}
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._connect()


def leaves_of(table: TensorDictBase) -> list[Tensor]:
    """All tensors of ``table``, nested or not."""
    return list(table.values(True, True))


def all_same(left: Sequence[Tensor], right: Sequence[Tensor]) -> bool:
    """True if both have the same tensors, and not only equal ones.

    >>> import torch
    >>> zero = torch.zeros(1)
    >>> all_same([zero], [zero]), all_same([zero], [zero.clone()]), all_same([zero], [])
    (True, False, False)
    """
    return len(left) == len(right) and all(map(is_, left, right))
