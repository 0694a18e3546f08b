"""Perceptrons inside a network of others: their layers by name, run over given tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from tensordict import TensorDictBase, TensorDictParams
from torch import Tensor, nn
from torchrl.modules import MLP

from torchrl_elegant.functional import perceptrons
from torchrl_elegant.modules import ACTIVATIONS
from torchrl_elegant.objectives.common.bound_networks import all_same

Path = tuple[str, ...]

_NAMES: dict[type, str] = {nn.ReLU: "relu", nn.SiLU: "silu", nn.Tanh: "tanh"}


class Body(NamedTuple):
    """Layers of a perceptron inside a network: where their tensors lie, and what follows each."""

    paths: list[Path]  # weight and bias of each layer
    activations: list[Callable[[Tensor], Tensor] | None]

    def run(self, tensors: Sequence[Tensor], x: Tensor, *, stacked: bool) -> Tensor:
        """Outputs ``[N, *B, out]`` of stacked tensors, or ``[*B, out]``."""
        flat = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
        if not stacked:
            out = flat
            for i, activate in enumerate(self.activations):
                out = torch.nn.functional.linear(out, tensors[2 * i], tensors[2 * i + 1])
                out = out if activate is None else activate(out)
            return out if x.ndim == 2 else out.reshape(*x.shape[:-1], out.shape[-1])
        layers = [
            (tensors[i].transpose(1, 2), tensors[i + 1].unsqueeze(1))
            for i in range(0, 2 * len(self.activations), 2)
        ]
        out = perceptrons(flat, layers, self.activations)  # [N, B, out]
        return out if x.ndim == 2 else out.reshape(out.shape[0], *x.shape[:-1], out.shape[-1])


def body_of(module: nn.Module, path: Path) -> Body | None:
    """Layers of an ``MLP`` or of a ``Sequential`` of linear layers and activations; else None.

    >>> body_of(MLP(in_features=3, out_features=2, num_cells=[4]), ("net",)).paths
    [('net', '0', 'weight'), ('net', '0', 'bias'), ('net', '2', 'weight'), ('net', '2', 'bias')]
    >>> body_of(MLP(in_features=3, out_features=2, num_cells=[4], dropout=0.5), ())
    """
    return body_from(modules_in_turn(module, path) or [])


def body_from(modules: Sequence[tuple[Path, nn.Module]]) -> Body | None:
    """Layers of modules that run one after another; None where one is not known."""
    body, linears = Body([], []), [id(m) for _, m in modules if type(m) is nn.Linear]
    if len(set(linears)) < len(linears):
        return None  # one layer in two places has one place among the parameters
    for path, module in modules:
        activate = _activation(module)
        if type(module) is nn.Linear and module.bias is not None:
            body.paths.extend([(*path, "weight"), (*path, "bias")])
            body.activations.append(None)
        elif activate is not None and body.activations and body.activations[-1] is None:
            body.activations[-1] = activate
        else:
            return None
    return body if body.activations else None


def modules_in_turn(module: nn.Module, path: Path) -> list[tuple[Path, nn.Module]] | None:
    """Modules that run one after another, with their places; None where they do not."""
    if type(module) is MLP:
        if module._reshape_out:
            return None
    elif type(module) is not nn.Sequential:
        return [(path, module)]
    found: list[tuple[Path, nn.Module]] = []
    for name, child in module._modules.items():  # with those that appear twice
        inner = None if child is None else modules_in_turn(child, (*path, name))
        if inner is None:
            return None
        found += inner
    return found


def _activation(module: nn.Module) -> Callable[[Tensor], Tensor] | None:
    kind = type(module)
    if kind is nn.ELU:
        return ACTIVATIONS["elu"] if module.alpha == 1.0 else None
    if kind is nn.GELU:
        return ACTIVATIONS["gelu"] if module.approximate == "none" else None
    if kind is nn.LeakyReLU:
        return ACTIVATIONS["leaky_relu"] if module.negative_slope == 0.01 else None
    return ACTIVATIONS[_NAMES[kind]] if kind in _NAMES else None


class Lookup:
    """Tensors of a loss's parameters, looked up again when others take their place."""

    def __init__(self, params: TensorDictParams, paths: Sequence[Path], *, detached: bool) -> None:
        self._params, self._paths, self._detached = params, paths, detached
        self._table: TensorDictBase | None = None
        self._registered: tuple[Tensor, ...] = ()

    def __call__(self) -> list[Tensor]:
        params = self._params
        registered = (*params._parameters.values(), *params._buffers.values())
        if params._param_td is not self._table or not all_same(registered, self._registered):
            self._table, self._registered = params._param_td, registered
            self._found = [self._table.get(path) for path in self._paths]
        return [x.detach() for x in self._found] if self._detached else self._found
