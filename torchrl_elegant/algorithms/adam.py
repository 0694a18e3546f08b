"""Adam for small networks: tensor lists gathered once, clipping inside the kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchrl_elegant.functional import norm_of
from torchrl_elegant.functional.gradients import clip_gradients

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

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        self._lists = {}

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
