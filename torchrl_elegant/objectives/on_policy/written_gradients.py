"""Gradients of an actor and a critic, written out instead of recorded.

A narrow network spends more time on its graph than on its arithmetic. An update of 64x64 networks
takes half as long without a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from torchrl_elegant.functional import (
    SLOPES,
    perceptron,
    perceptron_gradient,
    value_loss,
    value_slope,
)
from torchrl_elegant.functional.gradients import add_gradients
from torchrl_elegant.modules import MLP, StateValue, StochasticActor

Written = tuple[dict[str, Tensor], list[Tensor]]  # terms, gradients of `written_parameters`


def written_parameters(*networks: StochasticActor | StateValue) -> list[Tensor]:
    """Parameters in the order in which their gradients are written.

    >>> critic = StateValue(observation={"observation": (3,)}, num_cells=(8,))
    >>> [tuple(param.shape) for param in written_parameters(critic)]
    [(8, 3), (8,), (1, 8), (1,)]
    """
    params: list[Tensor] = []
    for network in networks:
        for layer in network.net.linears():
            params += [layer.weight, layer.bias]
        if isinstance(network, StochasticActor):
            params += network.head_parameters
    return params


def write_policy(
    actor: StochasticActor,
    x: Tensor,
    action: Tensor,
    gain_slope: Callable[[Tensor], tuple[Tensor, Tensor]],
    entropy_coeff: Tensor | None,
) -> Written:
    """``-E[g(log pi(a|s))] - c H`` and its gradients; without a coefficient c, no entropy.

    ``gain_slope`` gives g and its derivative, in memory of its own.
    """
    layers = _layers(actor.net)
    output, given = perceptron(x, layers, actor.net.activate)
    head = actor.head_of(output)
    log_prob, backward = head.score(action)  # [B]
    gain, slope = gain_slope(log_prob)
    terms = {"loss_objective": -gain.mean()}
    if entropy_coeff is not None:
        terms["entropy"] = head.entropy().mean()
        terms["loss_entropy"] = -entropy_coeff * terms["entropy"]
    pull = None if entropy_coeff is None else -entropy_coeff
    grad, others = backward(slope.mul_(-1.0 / slope.numel()), pull)
    return terms, [*_gradients(actor.net, layers, given, grad), *others]


def backward_policy(
    actor: TensorDictModuleBase,
    rows: Mapping[NestedKey, Tensor],
    action_key: NestedKey,
    gain_slope: Callable[[Tensor], tuple[Tensor, Tensor]],
) -> Tensor | None:
    """Loss of ``write_policy`` without entropy; adds its gradients to the parameters.

    None where the gradients take autograd.
    """
    if not isinstance(actor, StochasticActor):
        return None
    seen = plain_inputs(rows, actor)
    if seen is None:
        return None
    with torch.no_grad():
        terms, grads = write_policy(actor, seen[0], rows[action_key], gain_slope, None)
    add_gradients(written_parameters(actor), grads)
    return terms["loss_objective"]


def write_value(
    critic: StateValue, x: Tensor, target: Tensor, *, coeff: Tensor, kind: str
) -> Written:
    """``c d(V(s), R)`` and its gradients.

    >>> import torch
    >>> critic = StateValue(observation={"observation": (1,)}, num_cells=())
    >>> one, target = torch.ones(1, 1), torch.zeros(1, 1)
    >>> terms, grads = write_value(critic, one, target, coeff=torch.tensor(0.5), kind="l2")
    >>> value = critic.values([one])
    >>> torch.equal(grads[0], value), torch.equal(terms["loss_critic"], 0.5 * value[0, 0] ** 2)
    (True, True)
    """
    layers = _layers(critic.net)
    output, given = perceptron(x, layers, critic.net.activate)
    terms = {"loss_critic": coeff * value_loss(output, target, kind=kind)}
    grad = coeff * value_slope(output, target, kind=kind)
    return terms, _gradients(critic.net, layers, given, grad)


def plain_inputs(
    tensordict: TensorDictBase | Mapping[NestedKey, Tensor], *networks: StochasticActor | StateValue
) -> list[Tensor] | None:
    """Input of each network, ``[B, features]``; None where its gradients take autograd.

    They are written out for plain perceptrons all of whose parameters learn.
    """
    seen = []
    for network in networks:
        known = type(network.net) is MLP and network.net.activation in SLOPES
        if not known or len(network.inputs.encoders):
            return None
        # Not `parameters()`: to look for them takes longer than a narrow layer.
        if not all(param.requires_grad for param in written_parameters(network)):
            return None
        seen.append(network.inputs.join([tensordict[key] for key in network.in_keys]))
    return seen if all(x.ndim == 2 and not x.requires_grad for x in seen) else None


def _layers(net: MLP) -> list[tuple[Tensor, Tensor]]:
    return [(layer.weight, layer.bias) for layer in net.linears()]


def _gradients(
    net: MLP, layers: Sequence[tuple[Tensor, Tensor]], given: Sequence[Tensor], grad: Tensor
) -> list[Tensor]:
    pairs = perceptron_gradient(grad, given, layers, SLOPES[net.activation])
    return [each for pair in pairs for each in pair]
