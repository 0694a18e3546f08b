"""A perceptron and its gradient, written out (Rumelhart et al. 1986)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

_ATEN = torch.ops.aten

#: Activations whose slope follows from their output: ``(gradient, output) -> gradient``.
SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "elu": lambda grad, out: _ATEN.elu_backward(grad, 1.0, 1.0, 1.0, True, out),
    "leaky_relu": lambda grad, out: _ATEN.leaky_relu_backward(grad, out, 0.01, True),
    "relu": partial(_ATEN.threshold_backward, threshold=0),
    "tanh": _ATEN.tanh_backward,
}

Layers = Sequence[tuple[Tensor, Tensor]]  # weight [out, in] and bias [out] of each


def perceptrons(
    x: Tensor, layers: Layers, activations: Sequence[Callable[[Tensor], Tensor] | None]
) -> Tensor:
    """Outputs ``[N, B, out]`` of N perceptrons of equal shape, in batched matrix products.

    Weights are ``[N, in, out]`` and biases ``[N, 1, out]``; the input ``[B, in]`` is shared by all,
    or ``[N, B, in]``. An activation may be in place; None leaves a layer linear.

    >>> import torch
    >>> layers = [(torch.ones(2, 3, 1), torch.tensor([[[0.0]], [[1.0]]]))]
    >>> perceptrons(torch.ones(1, 3), layers, [None]).flatten().tolist()
    [3.0, 4.0]
    """
    x = x.expand(layers[0][0].shape[0], *x.shape[-2:])  # [N, B, in]
    for (weight, bias), activate in zip(layers, activations, strict=True):
        if weight.shape[-1] > 1:
            x = torch.baddbmm(bias, x, weight)  # [N, B, out]
        else:
            # A matrix product with one column takes several times as long in both passes.
            x = (x * weight.transpose(1, 2)).sum(-1, keepdim=True) + bias
        if activate is not None:
            x = activate(x)
    return x


def perceptron(
    x: Tensor, layers: Layers, activate: Callable[[Tensor], Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """Output ``[B, out]``, and the input of every layer: ``x_0 = x, x_i = f(x_(i-1) W_i + b_i)``.

    >>> import torch
    >>> layers = [(torch.eye(2), torch.ones(2)), (torch.ones(1, 2), torch.zeros(1))]
    >>> perceptron(torch.tensor([[1.0, -3.0]]), layers, torch.relu)[0].tolist()
    [[2.0]]
    """
    *hidden, (last, last_bias) = layers
    given = [x]
    for weight, bias in hidden:
        given.append(activate(torch.addmm(bias, given[-1], weight.t())))
    return torch.addmm(last_bias, given[-1], last.t()), given


def perceptron_gradient(
    grad: Tensor, given: Sequence[Tensor], layers: Layers, slope: Callable[[Tensor, Tensor], Tensor]
) -> list[tuple[Tensor, Tensor]]:
    """Gradients of all weights and biases, from that of the output; none of the input.

    ``dW_i = g_i^T x_(i-1)``, ``db_i = sum_b g_i`` and ``g_(i-1) = f'(x_(i-1)) g_i W_i``.

    >>> import torch
    >>> layers = [(torch.eye(2), torch.ones(2)), (torch.ones(1, 2), torch.zeros(1))]
    >>> _, given = perceptron(torch.tensor([[1.0, -3.0]]), layers, torch.relu)
    >>> perceptron_gradient(torch.ones(1, 1), given, layers, SLOPES["relu"])[0][1].tolist()
    [1.0, 0.0]
    """
    grads = []
    for i in range(len(layers) - 1, -1, -1):
        grads.append((torch.mm(grad.t(), given[i]), grad.sum(0)))
        if i:
            grad = slope(torch.mm(grad, layers[i][0]), given[i])
    return grads[::-1]
