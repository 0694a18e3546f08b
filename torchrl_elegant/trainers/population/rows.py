"""Rows: the tensors of equal learners in common memory, one row for each learner."""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from torchrl_elegant.trainers.learner import Learner

#: Entries of Adam's state for one parameter.
MOMENTS = ("exp_avg", "exp_avg_sq", "step")


class Rows:
    """Stacks ``[P, *shape]`` of everything that P equal learners learn or are configured with.

    Parameters, targets, buffers and Adam's moments of each learner become views of its rows. So a
    learner stays what it was: it can be called, stored and loaded by itself, and what is computed
    over a stack is at once in all learners.

    Args:
        learners: with networks of equal shapes.

    >>> from torchrl_elegant.algorithms import PPOConfig
    >>> from torchrl_elegant.envs import make_env
    >>> env = make_env("Pendulum-v1")
    >>> learners = [Learner(PPOConfig(num_cells=(8,)).assemble(env)) for _ in range(2)]
    >>> rows = Rows(learners)
    >>> spread = next(learners[1].policy.parameters())
    >>> rows.stack_of(spread).shape, rows.stack_of(spread)[1].data_ptr() == spread.data_ptr()
    (torch.Size([2, 1]), True)
    """

    def __init__(self, learners: Sequence[Learner]) -> None:
        self.learners = list(learners)
        tables = [_tensors_of(learner) for learner in learners]
        forms = [{name: (t.shape, t.dtype) for name, t in table.items()} for table in tables]
        for index, form in enumerate(forms):
            different = [name for name in form | forms[0] if form.get(name) != forms[0].get(name)]
            if different:
                raise ValueError(
                    f"`learners` must have equal shapes, got {different[0]} of "
                    f"{form.get(different[0])} in learner {index} and "
                    f"{forms[0].get(different[0])} in learner 0"
                )
        self._stacks = {name: _room(len(tables), tensor) for name, tensor in tables[0].items()}
        for index in range(len(learners)):
            self.take_in(index)
        #: Parameters of each learner, in the order of its optimizer.
        self.params = [_params_of(learner) for learner in learners]

    def take_in(self, index: int) -> None:
        """Make rows again of a learner's tensors, with their numbers, after it was loaded."""
        learner = self.learners[index]
        _begin_moments(learner)
        moved: dict[int, Tensor] = {}
        for name, tensor in _tensors_of(learner).items():
            row = self._stacks[name][index]
            if tensor.data_ptr() != row.data_ptr():
                row.copy_(tensor.detach())
                moved[tensor.data_ptr()] = row
        place = _Place(moved)
        for module in _modules_of(learner):
            module._apply(place)
        for state in _moments_of(learner):
            for name in MOMENTS:
                state[name] = place(state[name])
        self._rows = {
            row.data_ptr(): stack
            for stack in self._stacks.values()
            for row in stack.detach().unbind(0)
        }

    def replace(self, index: int, learner: Learner) -> None:
        """Put another learner in the place of one, with its numbers."""
        self.learners[index], self.params[index] = learner, _params_of(learner)
        self.take_in(index)

    def copy(self, source: int, target: int, *, kept: Container[str] = ()) -> None:
        """Give one learner the numbers of another, but for those of the names ``kept``."""
        for name, stack in self._stacks.items():
            if name not in kept:
                stack[target].copy_(stack[source])

    def stack_of(self, row: Tensor) -> Tensor:
        """The stack of which a learner's tensor is a row."""
        stack = self._rows.get(row.data_ptr())
        if stack is None or stack.shape[1:] != row.shape:
            raise ValueError(
                f"a tensor of shape {tuple(row.shape)} belongs to no module of the learner, so "
                "that no row of a population can stand for it"
            )
        return stack

    def moments(self, param: Tensor) -> list[Tensor]:
        """Stacks of Adam's moments and steps of a parameter of the first learner."""
        state = self.learners[0].optimizer.state[param]
        return [self.stack_of(state[name]) for name in MOMENTS]

    def are_finite(self) -> list[bool]:
        """For each learner, whether all its parameters are finite."""
        stacks = [self.stack_of(param.detach()) for param in self.params[0]]
        finite = torch.stack([stack.reshape(len(stack), -1).isfinite().all(1) for stack in stacks])
        return finite.all(0).tolist()


class _Place:
    """Gives for a tensor the row that takes its place."""

    def __init__(self, moved: dict[int, Tensor]) -> None:
        self._moved = moved

    def __call__(self, tensor: Tensor) -> Tensor:
        return self._moved.get(tensor.data_ptr(), tensor)


def _modules_of(learner: Learner) -> list[nn.Module]:
    return [learner.loss, learner.policy]


def _tensors_of(learner: Learner) -> dict[str, Tensor]:
    """All tensors of a learner's modules and optimizer, each under one name."""
    learner.loss.state_dict()  # makes buffers that are made when they are first asked for
    found: dict[str, Tensor] = {}
    seen = set()
    for prefix, module in zip(("loss", "policy"), _modules_of(learner), strict=True):
        for name, tensor in chain(module.named_parameters(), module.named_buffers()):
            if tensor.data_ptr() not in seen and tensor.numel():
                seen.add(tensor.data_ptr())
                found[f"{prefix}.{name}"] = tensor
    for index, state in enumerate(_moments_of(learner)):
        for name in MOMENTS:
            found[f"optimizer.{index}.{name}"] = state[name]
    return found


def _params_of(learner: Learner) -> list[nn.Parameter]:
    return [param for group in learner.optimizer.param_groups for param in group["params"]]


def _begin_moments(learner: Learner) -> None:
    """Make the state of an Adam that has not stepped."""
    state = learner.optimizer.state
    for param in _params_of(learner):
        if param not in state:
            state[param] = {
                "exp_avg": torch.zeros_like(param, requires_grad=False),
                "exp_avg_sq": torch.zeros_like(param, requires_grad=False),
                "step": torch.zeros((), device=param.device),
            }


def _moments_of(learner: Learner) -> list[dict[str, Any]]:
    _begin_moments(learner)
    return [learner.optimizer.state[param] for param in _params_of(learner)]


def _room(count: int, tensor: Tensor) -> Tensor:
    return torch.empty(count, *tensor.shape, dtype=tensor.dtype, device=tensor.device)
