"""Adam over stacks: each member has rates, moments and a gradient norm of its own."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from ctypes import c_double, c_int64, c_void_p
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from torchrl_elegant.algorithms.adam import settings_of
from torchrl_elegant.objectives.compiled.kernels import kernels
from torchrl_elegant.trainers.population.rows import Rows


class StackedAdam:
    """One step of the Adam of each of some members, from stacked gradients.

    Equations and moments are those of each member's own ``LeanAdam``, which stays what it was. On
    the CPU the kernel of that optimizer does all members in one call; without it, and on other
    devices, a few operations over each stack do.

    Args:
        rows: all members.
        members: those that step.
        learns: positions, in the optimizer, of the parameters that have gradients; ascending.

    >>> from torchrl_elegant.algorithms import PPOConfig
    >>> from torchrl_elegant.envs import make_env
    >>> from torchrl_elegant.trainers.learner import Learner
    >>> env = make_env("Pendulum-v1")
    >>> configs = [PPOConfig(num_cells=(8,), lr=lr) for lr in (0.1, 0.2)]
    >>> learners = [Learner(config.assemble(env)) for config in configs]
    >>> rows = Rows(learners)
    >>> adam = StackedAdam(rows, slice(0, 2), learns=[0])
    >>> adam.step([torch.ones(2, 1)])
    >>> [round(learner.policy.log_std.item(), 3) for learner in learners]
    [-0.1, -0.2]
    """

    def __init__(self, rows: Rows, members: slice, *, learns: Sequence[int]) -> None:
        self._learners, self._members = rows.learners, members
        self._count = members.stop - members.start
        optimizer: Any = rows.learners[0].optimizer
        self._max_norm = optimizer.max_grad_norm
        groups = optimizer.param_groups
        of_params = [index for index, group in enumerate(groups) for _ in group["params"]]
        #: Parameter group of each parameter that learns.
        self._groups = [of_params[position] for position in learns]
        first = rows.params[0]
        self._stacks: list[list[Tensor]] = []
        for position in learns:
            param: Parameter = first[position]
            stacks = [rows.stack_of(param.detach()), *rows.moments(param)]
            self._stacks.append([stack[members] for stack in stacks])
        self._settings: list[list[tuple[Any, ...]]] = []
        plain = all(
            stack.dtype is torch.float32 and stack.is_cpu and stack.is_contiguous()
            for stack in chain.from_iterable(self._stacks)
        )
        self._library = kernels() if plain else None
        if self._library is not None:
            self._lay_out()
        self.refresh()

    def refresh(self) -> None:
        """Read the members' rates anew; they move at most once a round."""
        # Of the learners that are there now: one may have taken another's place.
        optimizers = [learner.optimizer for learner in self._learners[self._members]]
        settings = [[settings_of(group) for group in each.param_groups] for each in optimizers]
        if settings == self._settings:
            return
        self._settings = settings
        flat = [each[group] for each in settings for group in self._groups]
        if any(others for *_, others in flat):
            raise ValueError("`optimizer` must be a plain Adam, got amsgrad or decoupled decay")
        self._numbers = array("d", chain.from_iterable(numbers for *numbers, _ in flat))

    @torch.no_grad()
    def step(self, grads: Sequence[Tensor]) -> None:
        """Clip and step; ``grads`` are ``[P, *shape]`` in the order of ``learns``."""
        if self._library is None:
            self._step_plainly(list(grads))
            return
        kept = [grad.contiguous() for grad in grads]
        found = self._offsets + np.array([*map(Tensor.data_ptr, kept)])
        tables = [*self._tables, self._numbers]
        self._library.own_adam(
            c_int64(found.size),
            *(c_void_p(table.buffer_info()[0]) for table in tables),
            c_void_p(found.ctypes.data),
            c_double(-1.0 if self._max_norm is None else self._max_norm),
        )

    def _lay_out(self) -> None:
        """Tables for the kernel: one entry for each member's share of each stack."""
        count, several = self._count, max(self._groups) + 1
        of_groups = [group + member * several for member in range(count) for group in self._groups]
        sizes = [params.numel() // count for params, *_ in self._stacks] * count
        columns = [self._addresses_of(column) for column in zip(*self._stacks, strict=True)]
        self._tables = [array("q", each) for each in (sizes, of_groups, *columns)]
        #: Bytes from the start of each stack of gradients to each member's, ``[M, n]``.
        self._offsets = np.arange(count)[:, None] * 4 * np.array(sizes[: len(self._stacks)])

    def _addresses_of(self, stacks: Sequence[Tensor]) -> list[int]:
        places = [(stack.data_ptr(), 4 * stack.stride(0)) for stack in stacks]
        return [at + member * step for member in range(self._count) for at, step in places]

    def _step_plainly(self, grads: list[Tensor]) -> None:
        count, device = self._count, grads[0].device
        numbers = torch.tensor(self._numbers, dtype=torch.float64).view(count, len(grads), 6)
        numbers = numbers.to(device)
        if self._max_norm is not None:
            grads = self._clipped(grads)
        for position, (grad, stacks) in enumerate(zip(grads, self._stacks, strict=True)):
            param, first, second, steps = stacks
            steps.add_(1.0)
            shape = (count, *[1] * (grad.ndim - 1))
            lr, beta1, beta2, decay, eps, sign = (
                each.view(shape) for each in numbers[:, position].unbind(1)
            )
            grad = torch.addcmul(grad * sign.to(grad), param, decay.to(grad))
            first.lerp_(grad, (1.0 - beta1).to(grad))
            second.mul_(beta2.to(grad)).add_(grad.square() * (1.0 - beta2).to(grad))
            t = steps.view(shape).double()
            root = (1.0 - beta2**t).sqrt()
            size = (lr / (1.0 - beta1**t)).to(grad)
            param.sub_(size * first / (second.sqrt() / root.to(grad) + eps.to(grad)))

    def _clipped(self, grads: list[Tensor]) -> list[Tensor]:
        squares = torch.stack([grad.reshape(len(grad), -1).square().sum(1) for grad in grads])
        clipped = list(grads)
        for group in set(self._groups):
            inside = [index for index, each in enumerate(self._groups) if each == group]
            norm = squares[inside].sum(0).sqrt()
            scale = (self._max_norm / (norm + 1e-6)).clamp(max=1.0)
            # A norm that is no number leaves its gradient.
            scale = torch.where(scale.isnan(), 1.0, scale)
            for index in inside:
                grad = grads[index]
                clipped[index] = grad * scale.view(-1, *[1] * (grad.ndim - 1))
        return clipped
