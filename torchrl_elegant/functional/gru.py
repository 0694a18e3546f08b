"""Gated recurrent unit over whole sequences, with its gradient written out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def gru_states(
    gates: Tensor, state: Tensor, weight: Tensor, bias: Tensor, keep: Tensor | None = None
) -> Tensor:
    r"""States ``[T, N, H]`` of a gated recurrent unit (Cho et al. 2014, arXiv:1406.1078).

    .. math::

        r &= \sigma(g_r + W_r h + b_r), \quad z = \sigma(g_z + W_z h + b_z)     \\
        n &= \tanh(g_n + r (W_n h + b_n))                                       \\
        h &\leftarrow (1 - z) n + z h

    with the inputs' share g already computed, ``[T, N, 3H]`` in the order r, z, n. Weights, order
    and results are those of ``torch.nn.GRU``. The way back is written out: it takes the gradient of
    W in one product over all steps, where autograd takes one for each step
    (``benchmarks/recurrent.py`` has the measured ratio).

    Args:
        gates: inputs' share of the gates, first bias included.
        state: state before the first step, ``[N, H]``.
        weight, bias: W ``[3H, H]`` and b ``[3H]``.
        keep: factor of the state before each step, ``[T, N, 1]``: 0 where an episode begins.

    >>> gates, zeros = torch.zeros(2, 1, 3), torch.zeros(3)
    >>> gru_states(gates, torch.ones(1, 1), torch.zeros(3, 1), zeros).flatten().tolist()
    [0.5, 0.25]
    """
    return _Unroll.apply(gates, state, weight, bias, keep)


class _Unroll(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, state: Tensor, weight: Tensor, bias: Tensor, keep: Tensor | None
    ) -> Tensor:
        (steps, rows, _), size = gates.shape, state.shape[-1]
        inner = gates.new_empty(gates.shape)  # W h + b
        gated = gates.new_empty(steps, rows, 2 * size)  # r, z
        new = gates.new_empty(steps, rows, size)  # n
        states = gates.new_empty(steps, rows, size)
        resets = [1.0] * steps if keep is None else keep.unbind(0)
        before, across = [], weight.t()
        # Views of all steps at once: slices in the loop take longer than the arithmetic.
        of_step = zip(
            gates[..., : 2 * size].unbind(0),
            gates[..., 2 * size :].unbind(0),
            inner.unbind(0),
            inner[..., : 2 * size].unbind(0),
            inner[..., 2 * size :].unbind(0),
            gated.unbind(0),
            gated[..., :size].unbind(0),
            gated[..., size:].unbind(0),
            new.unbind(0),
            states.unbind(0),
            resets,
            strict=True,
        )
        for given, given_new, own, own_gates, own_new, both, r, z, n, after, reset in of_step:
            if keep is not None:
                state = state * reset
            before.append(state)
            torch.addmm(bias, state, across, out=own)
            torch.add(given, own_gates, out=both).sigmoid_()
            torch.addcmul(given_new, r, own_new, out=n).tanh_()
            state = torch.lerp(n, state, z, out=after)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(gated, new, inner, torch.stack(before), weight, keep)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        gated, new, inner, before, weight, keep = ctx.saved_tensors
        (steps, rows, size), grad = new.shape, grads[0]
        r, z = gated.chunk(2, -1)
        # Slopes by the state of W_n h + b_n, and of r, z and n before their functions. The first
        # three belong to W, the last three to the inputs' share.
        by_new = (1.0 - new.square()) * (1.0 - z)
        by_reset = by_new * inner[..., 2 * size :] * r * (1.0 - r)
        by_update = (before - new) * z * (1.0 - z)
        slopes = torch.stack([by_new * r, by_reset, by_update, by_new], 2)  # [T, N, 4, H]
        flat = slopes.view(steps, rows, 4 * size)
        turned = torch.cat([weight[2 * size :], weight[: 2 * size]])  # [3H, H], n first
        of_inner, kept = flat[..., : 3 * size].unbind(0), z.unbind(0)
        pull = grad[-1]
        for t in range(steps - 1, -1, -1):
            slopes[t].mul_(pull.unsqueeze(1))
            pull = torch.addmm(pull * kept[t], of_inner[t], turned)
            if keep is not None:
                pull = pull * keep[t]
            if t:
                pull = pull + grad[t - 1]
        own = flat[..., : 3 * size].flatten(0, 1)
        by_weight, by_bias = own.t() @ before.flatten(0, 1), own.sum(0)
        return flat[..., size:], pull, by_weight.roll(-size, 0), by_bias.roll(-size, 0), None
