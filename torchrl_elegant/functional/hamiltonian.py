"""The Hamiltonian term: its weights over slices of trajectories."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from torchrl_elegant.functional.surrogate import clipped_surrogate_slope

Form = Literal["ratio", "log", "prob", "imitate"]
# Products over K steps run away: beyond this they are not followed. About ElegantRL's bound.
_LOG_MOST = math.log(10.0)


class Steps(NamedTuple):
    """Which steps of slices exist, and which have a reward, each ``[L, K]``."""

    real: Tensor
    rewarded: Tensor


def steps_of(done: Tensor, terminated: Tensor, mask: Tensor | None = None) -> Steps:
    """Steps up to the first ``done`` are real; after a termination the rest are rewarded with 0.

    A terminated slice stays where it is for good, which no action changes: rewards of 0 that count
    let a baseline cancel over all K steps. What follows a truncation is unknown and does not count.
    ``mask`` tells padding, which comes last, from steps.

    >>> import torch
    >>> done = torch.tensor([[False, True, False], [False, True, False]])
    >>> real, rewarded = steps_of(done, done & torch.tensor([[True], [False]]))
    >>> real.tolist(), rewarded.tolist()
    ([[True, True, False], [True, True, False]], [[True, True, True], [True, True, False]])
    """
    real = (done.cumsum(1) - done.long()) == 0
    real = real if mask is None else real & mask
    absorbed = (terminated & real).any(1, keepdim=True)
    return Steps(real, real | absorbed)


def hamiltonian(
    log_prob: Tensor,
    gain: Tensor,
    behaviour: Tensor | None = None,
    *,
    form: Form,
    clip: float = 0.2,
) -> Tensor:
    r"""H of each slice, ``[L]``; ``log_prob``, ``gain`` and ``behaviour`` are ``[L, K]``.

    With ``c_k = sum_{j<=k} [log pi_j - log mu_j]`` and ``gain_k = gamma^(k-1) m_k (r_k - b_k)``:

    ``H = -sum_k gain_k phi(c_k)``

    - ``ratio``: phi = exp(c_k), the smaller of ``gain phi`` and ``gain clip(phi)`` as in PPO;
    - ``log``: phi = sum_{j<=k} log pi_j, whose gradient is that of ``ratio`` where pi = mu;
    - ``prob``: phi = prod_{j<=k} pi_j, the sampled form of the sum over all actions. It weighs each
      slice by its probability although slices already come as often as that;
    - ``imitate``: ``H = -sum_j (sum_{k>=j} gain_k)^+ log pi_j``, what went well from there on is
      made likelier and nothing less likely, whoever did it (self-imitation, Oh et al. 2018, eq. 2).

    Both products are held at 10 and have no gradient beyond. Steps that do not exist have
    ``log_prob = behaviour = 0``. One autograd node; gain and behaviour are constants to it, and it
    can be differentiated once.

    >>> import torch
    >>> half = torch.full((1, 2), 0.5).log()
    >>> hamiltonian(half, torch.tensor([[1.0, 4.0]]), form="prob").tolist()
    [-1.5]
    """
    return _Hamiltonian.apply(log_prob, gain, behaviour, form, clip)


def hamiltonian_slope(
    log_prob: Tensor, gain: Tensor, behaviour: Tensor | None = None, *, form: Form, clip: float
) -> tuple[Tensor, Tensor]:
    """H and its derivative by ``log_prob``, ``[L, K]``.

    ``dH / d log pi_j = sum_{k>=j} dH / d c_k``, of ``imitate`` its negative part

    >>> import torch
    >>> half = torch.full((1, 2), 0.5).log()
    >>> hamiltonian_slope(half, torch.tensor([[1.0, 4.0]]), form="log", clip=0.2)[1].tolist()
    [[-5.0, -4.0]]
    """
    summed = (log_prob if behaviour is None else log_prob - behaviour).cumsum(1)  # c_k
    if form == "imitate":
        good = _from_here_on(gain).clamp(min=0.0)
        return -(good * log_prob).sum(1), -good
    if form == "log":
        value, slope = gain * summed, gain
    else:
        held = summed.clamp(max=_LOG_MOST)
        if form == "ratio":
            value, slope = clipped_surrogate_slope(held, gain, 1.0 - clip, 1.0 + clip)
        else:
            value = gain * held.exp()
            slope = value
        slope = slope.masked_fill(summed > _LOG_MOST, 0.0)
    return -value.sum(1), -_from_here_on(slope)


def _from_here_on(values: Tensor) -> Tensor:
    """``sum_{k>=j} x_k``, ``[L, K]``."""
    return values.sum(1, keepdim=True) - values.cumsum(1) + values


class _Hamiltonian(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, log_prob: Tensor, gain: Tensor, behaviour: Tensor | None, form: Form, clip: float
    ) -> Tensor:
        energy, slope = hamiltonian_slope(log_prob, gain, behaviour, form=form, clip=clip)
        ctx.save_for_backward(slope)
        return energy

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return grad.unsqueeze(1) * slope, None, None, None, None
