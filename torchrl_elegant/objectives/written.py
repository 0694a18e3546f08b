"""The gradients of an actor and a critic, written out instead of recorded.

A narrow network spends more time on its graph than on its arithmetic: an update of 64x64 networks
takes half as long without one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tensordict import TensorDictBase
from torch import Tensor

from torchrl_elegant.functional import (
    SLOPES,
    perceptron,
    perceptron_gradient,
    value_loss,
    value_slope,
)
from torchrl_elegant.modules import MLP, StateValue, StochasticActor


class WrittenPass:
    """One pass through a perceptron, and back into the ``grad`` of its parameters.

    >>> import torch
    >>> net = MLP(in_features=2, out_features=1, num_cells=(), activation="tanh")
    >>> written = WrittenPass(net, torch.ones(3, 2))
    >>> written.backward(torch.ones(3, 1))
    >>> net.layers[0].weight.grad.tolist()
    [[3.0, 3.0]]
    """

    def __init__(self, net: MLP, x: Tensor) -> None:
        self._net = net
        self._layers = [(layer.weight, layer.bias) for layer in net.linears()]
        self.output, self._given = perceptron(x, self._layers, net.activate)

    def backward(self, grad: Tensor) -> None:
        """Add what ``grad`` of the output means for the parameters."""
        slope = SLOPES[self._net.activation]
        grads = perceptron_gradient(grad, self._given, self._layers, slope)
        for layer, pair in zip(self._layers, grads, strict=True):
            add_gradients(layer, pair)


def add_gradients(params: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
    """As ``backward`` does: into the ``grad`` that is there, or as a new one."""
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad if param.grad is None else param.grad + grad


def write_policy(
    actor: StochasticActor,
    x: Tensor,
    action: Tensor,
    gain_slope: Callable[[Tensor], tuple[Tensor, Tensor]],
    entropy_coeff: Tensor | None,
) -> dict[str, Tensor]:
    """``-E[gain(log pi(a|s))] - c H`` and its gradient; ``gain_slope`` gives the gain and its
    derivative, in memory of its own. Without a coefficient there is no entropy."""
    written = WrittenPass(actor.net, x)
    head = actor.head_of(written.output)
    log_prob, backward = head.score(action)  # [B]
    gain, slope = gain_slope(log_prob)
    terms = {"loss_objective": -gain.mean()}
    if entropy_coeff is not None:
        terms["entropy"] = head.entropy().mean()
        terms["loss_entropy"] = -entropy_coeff * terms["entropy"]
    pull = None if entropy_coeff is None else -entropy_coeff
    grad, others = backward(slope.mul_(-1.0 / slope.numel()), pull)
    written.backward(grad)
    add_gradients(actor.head_parameters, others)
    return terms


def write_value(
    critic: StateValue, x: Tensor, target: Tensor, *, coeff: Tensor, kind: str
) -> dict[str, Tensor]:
    """``c d(V(s), R)`` and its gradient."""
    written = WrittenPass(critic.net, x)
    loss = coeff * value_loss(written.output, target, kind=kind)
    written.backward(coeff * value_slope(written.output, target, kind=kind))
    return {"loss_critic": loss}


def plain_inputs(
    tensordict: TensorDictBase, *networks: StochasticActor | StateValue
) -> list[Tensor] | None:
    """What each network is given, ``[B, features]``; None where its gradients take autograd: for
    other than plain perceptrons, all of whose parameters are learnt."""
    seen = []
    for network in networks:
        known = type(network.net) is MLP and network.net.activation in SLOPES
        if not known or any(True for _ in network.inputs.parameters()):
            return None
        if not all(param.requires_grad for param in network.parameters()):
            return None
        seen.append(network.inputs.join([tensordict.get(key) for key in network.in_keys]))
    return seen if all(x.ndim == 2 and not x.requires_grad for x in seen) else None
