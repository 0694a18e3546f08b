"""The Hamiltonian term: its weights over slices of trajectories."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from torchrl_elegant.functional.surrogate import clipped_surrogate_slope

Form = Literal["ratio", "log", "imitate"]
# Products over K steps explode: they have no gradient beyond this. About ElegantRL's bound.
_LOG_MOST = math.log(10.0)


class Steps(NamedTuple):
    """Masks of the steps that exist and of those whose reward counts, each ``[L, K]``."""

    real: Tensor
    rewarded: Tensor


def steps_of(done: Tensor, terminated: Tensor, mask: Tensor | None = None) -> Steps:
    """Masks of the steps of slices, from their flags.

    Steps up to the first ``done`` are real. After a termination the rest have a reward of 0 that
    counts: no action can change it, and a baseline then cancels over all K steps. Steps after a
    truncation are unknown and do not count. ``mask`` is False for padding, which comes last.

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
    behavior: Tensor | None = None,
    *,
    form: Form,
    clip: float | None = None,
) -> Tensor:
    r"""H of each slice, ``[L]``; ``log_prob``, ``gain`` and ``behavior`` are ``[L, K]``.

    With ``c_k = sum_{j<=k} [log pi_j - log mu_j]`` and ``gain_k = gamma^(k-1) m_k (r_k - b_k)``:

    ``H = -sum_k gain_k phi(c_k)``

    - ``ratio``: phi = exp(c_k), the smaller of ``gain phi`` and ``gain clip(phi)`` as in PPO; it
      needs ``clip``;
    - ``log``: phi = sum_{j<=k} log pi_j, whose gradient is that of ``ratio`` where pi = mu;
    - ``imitate``: ``H = -sum_j (sum_{k>=j} gain_k)^+ log pi_j``. Actions after which the slice went
      well become likelier, and none become less likely, whatever policy took them (self-imitation,
      Oh et al. 2018, eq. 2).

    The ratio is held at 10 and has no gradient beyond. Steps that do not exist have
    ``log_prob = behavior = 0``. One autograd node; gain and behavior are constants to it, and it
    can be differentiated once.

    >>> import torch
    >>> half = torch.full((1, 2), 0.5).log()
    >>> round(hamiltonian(half, torch.tensor([[1.0, 4.0]]), form="log").item(), 4)
    6.2383
    """
    return _Hamiltonian.apply(log_prob, gain, behavior, form, clip)[0]


def hamiltonian_slope(
    log_prob: Tensor,
    gain: Tensor,
    behavior: Tensor | None = None,
    *,
    form: Form,
    clip: float | None = None,
) -> tuple[Tensor, Tensor]:
    """H and its derivative by ``log_prob``, ``[L, K]``.

    ``dH / d log pi_j = sum_{k>=j} dH / d c_k``; for ``imitate``, its negative part.

    >>> import torch
    >>> half = torch.full((1, 2), 0.5).log()
    >>> hamiltonian_slope(half, torch.tensor([[1.0, 4.0]]), form="log")[1].tolist()
    [[-5.0, -4.0]]
    """
    summed = (log_prob if behavior is None else log_prob - behavior).cumsum(1)  # c_k
    if form == "imitate":
        good = _from_here_on(gain).clamp(min=0.0)
        return -(good * log_prob).sum(1), -good
    if form == "log":
        return -(gain * summed).sum(1), -_from_here_on(gain)
    if clip is None:
        raise ValueError("`clip` must be given for form='ratio', got `None`")
    held = summed.clamp(max=_LOG_MOST)
    value, slope = clipped_surrogate_slope(held, gain, 1.0 - clip, 1.0 + clip)
    slope = slope.masked_fill(summed > _LOG_MOST, 0.0)
    return -value.sum(1), -_from_here_on(slope)


def _from_here_on(values: Tensor) -> Tensor:
    """``sum_{k>=j} x_k``, ``[L, K]``."""
    return values.sum(1, keepdim=True) - values.cumsum(1) + values


class _Hamiltonian(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        log_prob: Tensor,
        gain: Tensor,
        behavior: Tensor | None,
        form: Form,
        clip: float | None,
    ) -> tuple[Tensor, Tensor]:
        return hamiltonian_slope(log_prob, gain, behavior, form=form, clip=clip)

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return grad.unsqueeze(1) * slope, None, None, None, None
