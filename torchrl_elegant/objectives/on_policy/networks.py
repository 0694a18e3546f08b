"""Actors and critics of on-policy losses, called directly."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torchrl._utils import logger as torchrl_logger

from torchrl_elegant.modules import StateValue, StochasticActor


class Compiled:
    """``torch.compile`` that falls back to the function itself.

    Whether this machine can compile shows at the first call. If it cannot, as without a C++
    compiler, that is said once, and the function runs as it is: the results are the same.

    >>> double = Compiled(lambda x: 2 * x)
    >>> double(torch.ones(1)).item()
    2.0
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._compiled: Callable[..., Any] | None = torch.compile(function)
        self._proven = False

    def __call__(self, *args: Any) -> Any:
        if self._compiled is None:
            return self._function(*args)
        if self._proven:
            return self._compiled(*args)
        try:
            result = self._compiled(*args)
            self._proven = True
            return result
        except Exception as error:
            # First, because a mistake in the arguments is the caller's and not the compiler's.
            result = self._function(*args)
            self._compiled = None
            reason = str(error).strip().splitlines() or [type(error).__name__]
            torchrl_logger.warning("not compiled, and slower for it: %s", reason[0])
            return result


if TYPE_CHECKING:
    from torchrl.objectives import LossModule as _Base
    from typing_extensions import Self
else:
    # Not a LossModule: one gets a `forward` of its own, which would stand before TorchRL's.
    _Base = object

# What an update runs, compiled where that is asked for.
_RUN = ("_terms", "_written")


class ConnectedNetworks(_Base):
    """The part of an on-policy loss that keeps its networks at its parameters."""

    _compiles = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connect()

    def compile_terms(self) -> Self:
        """Compile what an update runs: a sixth less time for narrow networks, after some seconds.
        Without a compiler nothing changes."""
        self._compiles = True
        self._connect()
        return self

    def _connect(self) -> None:
        """Make networks that are called directly hold the tensors that optimisers write."""
        self._networks_are_ours = (
            self.functional
            and isinstance(self.actor_network, StochasticActor)
            and isinstance(self.critic_network, StateValue)
        )
        for name in ("actor_network", "critic_network") if self._networks_are_ours else ():
            params = getattr(self, f"{name}_params")
            params.to_module(getattr(self, name), preserve_module_state=False)
        run = Compiled if self._compiles else lambda function: function
        for name in _RUN:
            self.__dict__[f"_run{name}"] = run(getattr(self, name))

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name.endswith("_network_params") and "_run_terms" in self.__dict__:
            self._connect()

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        out = super()._apply(fn)
        self._connect()
        return out

    def __getstate__(self) -> dict[str, Any]:
        # A copy runs its own terms, not this loss's.
        own = {f"_run{name}" for name in _RUN}
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # In a copy, parameters and modules are copied apart from one another.
        self._connect()
