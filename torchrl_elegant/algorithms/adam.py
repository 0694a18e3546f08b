"""Adam for small networks: tensor lists gathered once, clipping inside the kernel."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from ctypes import c_double, c_int64, c_void_p
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.optim import optimizer

from torchrl_elegant.functional import norm_of
from torchrl_elegant.functional.gradients import clip_gradients
from torchrl_elegant.objectives.compiled.kernels import kernels

#: Betas, learning rate, weight decay, epsilon, whether to maximize.
Settings = tuple[Any, ...]


def fused_step(
    settings: Settings,
    scale: Tensor | None,
    one: Tensor,
    grads: list[Tensor],
    params: list[Tensor],
    exp_avg: list[Tensor],
    exp_avg_sq: list[Tensor],
    steps: list[Tensor],
) -> None:
    """Adam (Kingma and Ba 2015, algorithm 1) in place; gradients are divided by ``scale`` first.

    >>> one, param, grad = torch.ones(()), torch.ones(1), torch.ones(1)
    >>> state = [[torch.zeros(1)], [torch.zeros(1)], [torch.zeros(())]]
    >>> fused_step(((0.9, 0.999), 0.1, 0.0, 1e-8, False), None, one, [grad], [param], *state)
    >>> round(param.item(), 3)
    0.9
    """
    if steps[0].is_cpu:
        # A Python number would be wrapped into a tensor once per step count.
        torch._foreach_add_(steps, one, alpha=1.0)
    else:
        torch._foreach_add_(steps, 1)
    betas, lr, weight_decay, eps, maximize = settings
    torch._fused_adam_(
        params,
        grads,
        exp_avg,
        exp_avg_sq,
        [],
        steps,
        amsgrad=False,
        lr=lr,
        beta1=betas[0],
        beta2=betas[1],
        weight_decay=weight_decay,
        eps=eps,
        maximize=maximize,
        grad_scale=scale,
    )


_SETTINGS = ("lr", "weight_decay", "eps", "maximize")
_STATE = ("exp_avg", "exp_avg_sq", "step")


def _arguments(tables: Sequence[array[Any]], max_norm: float | None) -> tuple[Any, ...]:
    """Arguments of ``own_adam``, which reads the tables where they are."""
    addresses = (c_void_p(table.buffer_info()[0]) for table in tables)
    return c_int64(len(tables[0])), *addresses, c_double(-1.0 if max_norm is None else max_norm)


class HandedStep:
    """Step of an optimizer by ``own_adam`` whose gradients are handed over; see ``step_of``."""

    def __init__(
        self,
        kernel: _OwnKernel,
        places: list[int],
        tables: list[array[Any]],
        max_norm: float | None,
    ) -> None:
        self._kernel, self._places = kernel, places
        self._tables = tables  # read by their addresses
        self._arguments = _arguments(tables, max_norm)

    def __call__(self, grads: Sequence[Tensor]) -> bool:
        """Step, or False where a gradient is not one that the kernel knows."""
        if not all(map(Tensor.is_contiguous, grads)):
            return False
        found = self._tables[-1]
        for place, grad in zip(self._places, grads, strict=True):
            found[place] = grad.data_ptr()
        self._kernel.run(*self._arguments)
        return True


class _OwnKernel:
    """Step of an optimizer by ``own_adam``: addresses are gathered once, in the kernel's order."""

    def __init__(self, library: Any, groups: list[dict[str, Any]], state: Any) -> None:
        self._function = library.own_adam
        self._groups = groups
        self._params: list[Tensor] = [param for group in groups for param in group["params"]]
        of_groups = [index for index, group in enumerate(groups) for _ in group["params"]]
        states = [[state[param][name] for param in self._params] for name in _STATE]
        # Keep the tensors alive: the kernel uses their addresses.
        self._tensors = [*self._params, *chain.from_iterable(states)]
        self._addresses, self._sizes = self._places()
        count = len(self._params)
        starts = [count * part for part in range(1 + len(_STATE))]
        tables = [self._addresses[start : start + count] for start in starts]
        self._tables = [array("q", each) for each in (self._sizes, of_groups, *tables)]
        self._settings: list[Any] = []
        self._numbers = array("d")

    def reads_all(self) -> bool:
        """True if the kernel can read all tensors of the optimizer."""
        return all(map(_is_plain, self._tensors))

    def fits(self) -> bool:
        """True if all tensors are where they were, with as many numbers in the same order."""
        ordered = all(map(Tensor.is_contiguous, self._params))
        return ordered and self._places() == (self._addresses, self._sizes)

    def step(self, max_norm: float | None) -> bool:
        """Step, or False where a setting or a gradient is not one that the kernel knows."""
        grads = [param.grad for param in self._params]
        is_ordered = all(grad is None or grad.is_contiguous() for grad in grads)
        if not is_ordered or not self._reads_settings():
            return False
        found = array("q", [0 if grad is None else grad.data_ptr() for grad in grads])
        self.run(*_arguments((*self._tables, self._numbers, found), max_norm))
        return True

    def step_of(self, params: Sequence[Tensor], max_norm: float | None) -> HandedStep | None:
        """Step for gradients of ``params``; None where they or a setting are others."""
        place_of = {id(param): place for place, param in enumerate(self._params)}
        if not place_of.keys() >= {*map(id, params)} or not self._reads_settings():
            return None
        places = [place_of[id(param)] for param in params]
        tables: list[array[Any]] = [*self._tables, self._numbers]
        tables.append(array("q", [0]) * len(self._params))
        return HandedStep(self, places, tables, max_norm)

    def run(self, *arguments: Any) -> None:
        self._function(*arguments)
        # As operations of PyTorch do: graphs that were built before must not go backward any more.
        increment_version(self._params)

    def _reads_settings(self) -> bool:
        """Read the settings of all groups; False if the kernel does not know one."""
        settings = [settings_of(group) for group in self._groups]
        if settings != self._settings:
            self._settings, self._numbers = settings, array("d")
            for group, (*numbers, _) in zip(self._groups, settings, strict=True):
                self._numbers.extend(numbers * len(group["params"]))
        return not any(others for *_, others in settings)

    def _places(self) -> tuple[list[int], list[int]]:
        return [*map(Tensor.data_ptr, self._tensors)], [*map(Tensor.numel, self._params)]


def settings_of(group: dict[str, Any]) -> tuple[Any, ...]:
    """Numbers of a group, and whether it asks for what the kernel does not do.

    A rate may be a tensor whose number changes in place.
    """
    beta1, beta2 = group["betas"]
    numbers = (group["lr"], beta1, beta2, group["weight_decay"], group["eps"])
    sign = -1.0 if group["maximize"] else 1.0
    return (*map(float, numbers), sign, group["amsgrad"] or group["decoupled_weight_decay"])


def _is_plain(tensor: Tensor) -> bool:
    return tensor.dtype is torch.float32 and tensor.is_cpu and tensor.is_contiguous()


class LeanAdam(torch.optim.Adam):
    """Fused Adam whose tensor lists are gathered once instead of at every step.

    Same arithmetic, ``state_dict`` and parameter groups as ``torch.optim.Adam(fused=True)``. At
    64 hidden units the gathering is a tenth of a whole SAC update. A group in which some parameters
    have no gradient is left to PyTorch's own step; one in which none has is passed over.

    With ``max_grad_norm`` the gradients of each parameter group are clipped on their own, so that
    a large gradient of the critics does not hold the actor back. The kernel clips as it reads them;
    clipping beforehand would write all of them once more.

    >>> import torch
    >>> weight = torch.nn.Parameter(torch.ones(1))
    >>> optimizer = LeanAdam([weight], lr=0.1)
    >>> weight.grad = torch.ones(1)
    >>> _ = optimizer.step()
    >>> round(weight.item(), 3)
    0.9
    """

    def __init__(
        self, params: Any, lr: float = 1e-3, *, max_grad_norm: float | None = None, **adam: Any
    ) -> None:
        super().__init__(params, lr=lr, fused=True, **adam)
        # The one place that PyTorch keeps in copies and pickles.
        self.defaults["max_grad_norm"] = max_grad_norm
        # A gradient scaler has to unscale itself: the lean step does not know its scale.
        self._step_supports_amp_scaling = False
        self._lists: dict[int, tuple[list[Tensor], ...]] = {}
        self._one = torch.ones(())
        self.defaults["compiled"] = False
        self._kernel: _OwnKernel | None = None

    def compile(self) -> None:
        """Let ``step_alone`` use a kernel of this package: a third of the time.

        Same equations, equal up to rounding. ``step`` is as before. On another device than the CPU,
        with other numbers than those of 32 bits, and without a C++ compiler nothing changes.
        """
        params = [param for group in self.param_groups for param in group["params"]]
        self.defaults["compiled"] = all(p.is_cpu and p.dtype is torch.float32 for p in params)

    def step_alone(self) -> None:
        """Step without a closure. Uses the kernel if it can and nothing is hooked to ``step``."""
        kernel = self._ready_kernel()
        if kernel is None or not kernel.step(self.max_grad_norm):
            self.step()

    def step_of(self, params: Sequence[Tensor]) -> HandedStep | None:
        """Step that is called with gradients of ``params``, checked once for many calls.

        Until the last of them nothing of the optimizer may change but numbers in its tensors. None
        where ``step_alone`` must take gradients from all parameters.
        """
        kernel = self._ready_kernel()
        groups = self.param_groups
        if kernel is None or any(p.grad is not None for group in groups for p in group["params"]):
            return None
        return kernel.step_of(params, self.max_grad_norm)

    def _is_hooked(self) -> bool:
        # A scheduler of rates puts a function of its own in the place of `step`.
        return "step" in self.__dict__ or any(
            (
                self._optimizer_step_pre_hooks,
                self._optimizer_step_post_hooks,
                optimizer._global_optimizer_pre_hooks,
                optimizer._global_optimizer_post_hooks,
            )
        )

    def _ready_kernel(self) -> _OwnKernel | None:
        """Kernel for the tensors as they are; None where PyTorch must step."""
        if not self.defaults["compiled"] or self._is_hooked():
            return None
        if self._kernel is None or not self._kernel.fits():
            self._kernel, library = None, kernels()
            groups = self.param_groups
            # PyTorch's own step creates what is missing.
            is_complete = all(param in self.state for group in groups for param in group["params"])
            if library is not None and is_complete:
                found = _OwnKernel(library, groups, self.state)
                self._kernel = found if found.reads_all() else None
        return self._kernel

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        plan = [(group, self._gradients(group["params"])) for group in self.param_groups]
        if not all(self._is_ready(index, *part) for index, part in enumerate(plan)):
            # PyTorch's own step creates what is missing and copes with holes.
            self._lists.clear()
            if self.max_grad_norm is not None:
                for _, grads in plan:
                    if grads:
                        clip_gradients(grads, self.max_grad_norm)
            super().step()
            return loss
        # Groups with the same settings, such as all networks at one rate, take one kernel.
        merged: dict[tuple[Settings, int | None], tuple[list[Tensor], ...]] = {}
        for index, (group, grads) in enumerate(plan):
            if grads:
                settings = (tuple(group["betas"]), *(group[name] for name in _SETTINGS))
                alone = None if self.max_grad_norm is None else index
                lists = merged.setdefault((settings, alone), ([], [], [], [], []))
                for whole, part in zip(lists, (grads, *self._gather(index, group)), strict=True):
                    whole += part
        for (settings, _), lists in merged.items():
            fused_step(settings, self._scale(lists[0]), self._one, *lists)
        return loss

    @property
    def max_grad_norm(self) -> float | None:
        """Largest norm of the gradients of a parameter group; None for any."""
        return self.defaults["max_grad_norm"]

    @max_grad_norm.setter
    def max_grad_norm(self, norm: float | None) -> None:
        self.defaults["max_grad_norm"] = norm

    def _scale(self, grads: list[Tensor]) -> Tensor | None:
        if self.max_grad_norm is None:
            return None
        # The kernel divides by it.
        return (norm_of(grads) + 1e-6).div_(self.max_grad_norm).clamp_(min=1.0)

    def zero_grad(self, set_to_none: bool = True) -> None:
        if not set_to_none:
            super().zero_grad(set_to_none=False)
            return
        for group in self.param_groups:
            for param in group["params"]:
                param.grad = None

    def load_state_dict(self, state_dict: Any) -> None:
        # The state of an Adam that was not fused counts its steps on the host.
        groups = [{**group, "fused": True} for group in state_dict["param_groups"]]
        super().load_state_dict({**state_dict, "param_groups": groups})

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # PyTorch keeps only its own attributes in copies and pickles.
        self._step_supports_amp_scaling = False
        self._lists = {}
        self._one = torch.ones(())
        self._kernel = None  # the moments are others now

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        self._lists, self._kernel = {}, None

    @staticmethod
    def _gradients(params: list[Tensor]) -> list[Tensor]:
        return [param.grad for param in params if param.grad is not None]

    def _is_ready(self, index: int, group: dict[str, Any], grads: list[Tensor]) -> bool:
        if not grads:
            return True
        if len(grads) != len(group["params"]) or group["amsgrad"]:
            return False
        known = index in self._lists or all(param in self.state for param in group["params"])
        return known and not group["decoupled_weight_decay"]

    def _gather(self, index: int, group: dict[str, Any]) -> tuple[list[Tensor], ...]:
        lists = self._lists.get(index)
        if lists is None:
            states = [self.state[param] for param in group["params"]]
            moments = ([state[name] for state in states] for name in _STATE)
            lists = self._lists[index] = (list(group["params"]), *moments)
        return lists
