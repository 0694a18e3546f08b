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
        inner, new, states = (gates.new_empty(steps, rows, size) for _ in range(3))
        gated = gates.new_empty(steps, rows, 2 * size)  # r, z
        across, across_new = weight[: 2 * size].t(), weight[2 * size :].t()
        # The bias of r and z joins the inputs' share; that of n stands behind r.
        share = gates[..., : 2 * size] + bias[: 2 * size]
        bias_new, before = bias[2 * size :], []
        resets = [1.0] * steps if keep is None else keep.unbind(0)
        # Views of all steps at once: slices in the loop take longer than the arithmetic.
        of_step = zip(
            share.unbind(0),
            gates[..., 2 * size :].unbind(0),
            inner.unbind(0),
            gated.unbind(0),
            gated[..., :size].unbind(0),
            gated[..., size:].unbind(0),
            new.unbind(0),
            states.unbind(0),
            resets,
            strict=True,
        )
        for given, given_new, own_new, both, r, z, n, after, reset in of_step:
            if keep is not None:
                state = state * reset
            before.append(state)
            torch.addmm(given, state, across, out=both).sigmoid_()
            torch.addmm(bias_new, state, across_new, out=own_new)
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
        slopes = new.new_empty(steps, rows, 4, size)
        own_new, by_reset, by_update, by_new = slopes.unbind(2)
        stays = 1.0 - z
        torch.mul(stays, new.square().neg_().add_(1.0), out=by_new)
        torch.mul(by_new, r, out=own_new)
        torch.mul(own_new, inner, out=by_reset).mul_(1.0 - r)
        torch.mul(before - new, stays.mul_(z), out=by_update)
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
