"""Networks that a loss calls directly, kept at the loss's own parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchrl.objectives import LossModule as _Base
    from typing_extensions import Self
else:
    # Not a LossModule: one gets a `forward` of its own, which would stand before TorchRL's.
    _Base = object


class BoundNetworks(_Base):
    """Part of a loss that binds its networks again after a cast, a move, a copy or an assignment.

    TorchRL keeps parameters apart from their network. Casts and moves replace tensors, and copies
    hold parameters and modules of their own: a network that is called directly would go on reading
    tensors that nothing trains. A subclass gives ``_make_calls`` and ends its constructor with
    ``_connect``.
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
        self._bind()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name.endswith("_network_params") and "_calls" in self.__dict__:
            self._bind()

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        out = super()._apply(fn)
        self._bind()
        return out

    def _make_vmap(self) -> None:
        self._bind()

    def __getstate__(self) -> dict[str, Any]:
        own = {"_calls", *self._calls}
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._connect()
