"""Temperature of a soft loss, under the names and in the checkpoints of TorchRL's SAC."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torchrl.data import Composite, TensorSpec

from torchrl_elegant.modules import FixedTemperature, LearnedTemperature, Temperature
from torchrl_elegant.objectives.off_policy.base import OffPolicyLoss


class TemperatureLoss(OffPolicyLoss):
    """Loss with a temperature, ``log_alpha``, and the entropy that it aims at.

    ``log_alpha`` is a parameter (learned) or a buffer (fixed); ``alpha_init``, the target entropy
    and the bounds are buffers. The target entropy is computed when first needed, because TorchRL's
    trainers set the action spec after construction.
    """

    # Names that a schedule may assign a number to, as for TorchRL's SAC.
    _schedulable_buffers = frozenset({"alpha_init", "min_log_alpha", "max_log_alpha", "log_alpha"})
    # Name of the target entropy in checkpoints.
    _entropy_buffer: ClassVar[str] = "_target_entropy"

    _action_spec: TensorSpec | None

    def _register_temperature(
        self, temperature: Temperature, action_spec: TensorSpec | None
    ) -> None:
        device = self.device
        log_alpha = torch.tensor(math.log(temperature.alpha), device=device)
        self.register_buffer("alpha_init", torch.tensor(float(temperature.alpha), device=device))
        self.min_log_alpha = self.max_log_alpha = None
        self._action_spec = action_spec
        self._wanted_entropy: float | str = temperature.target_entropy
        if isinstance(temperature, FixedTemperature):
            self.register_buffer("log_alpha", log_alpha)
            return
        self.log_alpha = nn.Parameter(log_alpha)
        for name in ("minimum", "maximum"):
            bound = getattr(temperature, name)
            if bound is not None:
                short = f"{name[:3]}_log_alpha"
                delattr(self, short)
                self.register_buffer(short, torch.tensor(math.log(bound), device=device))

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return next(self.parameters()).device

    @property
    def _alpha(self) -> Tensor:
        return self.log_alpha.detach().exp()

    def _bound_temperature(self) -> None:
        if self.min_log_alpha is not None or self.max_log_alpha is not None:
            # Not by `.data`, which vmap does not allow.
            with torch.no_grad():
                self.log_alpha.clamp_(self.min_log_alpha, self.max_log_alpha)

    @property
    def target_entropy(self) -> Tensor:
        """Entropy that a learned temperature aims at."""
        known = self._buffers.get(self._entropy_buffer)
        if known is None:
            value = self._wanted_entropy
            number = self._automatic_entropy() if value == "auto" else float(value)
            known = torch.tensor(number, device=self.device)
            # Not registered: the name may be this property's own.
            self._buffers[self._entropy_buffer] = known
        return known

    def _automatic_entropy(self) -> float:
        """Minus the number of action dimensions (Haarnoja et al. 2018b, sec. D)."""
        shape = getattr(self.actor_network, "action_shape", None)
        if shape is not None:
            return -float(torch.Size(shape).numel())
        spec = self._action_spec
        spec = getattr(self.actor_network, "spec", None) if spec is None else spec
        size = self._action_size(spec)
        if size is None:
            raise RuntimeError(
                "`target_entropy` 'auto' needs the action's size, got an actor without a spec; "
                "pass `action_spec` or a number as `target_entropy`"
            )
        return -float(size)

    def _action_size(self, spec: TensorSpec | None) -> int | None:
        """Numbers in one action, without the batch dimensions of its spec; None without a spec."""
        container: torch.Size = torch.Size([])
        if isinstance(spec, Composite):
            key = self.tensor_keys.action
            holder = spec[key[:-1]] if isinstance(key, tuple) and len(key) > 1 else spec
            container, spec = holder.shape, spec[key]
        if spec is None:
            return None
        leaves = [spec]
        if isinstance(spec, Composite):
            leaves = [leaf for leaf in spec.values(True, True) if leaf is not None]
        return sum(leaf.shape[len(container) :].numel() for leaf in leaves)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        _ = self.target_entropy  # computed late, and still in every checkpoint
        return super().state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        _ = self.target_entropy
        return super().load_state_dict(state_dict, *args, **kwargs)


def temperature_from(
    *,
    alpha_init: float,
    min_alpha: float | None,
    max_alpha: float | None,
    fixed_alpha: bool,
    target_entropy: float | str,
) -> Temperature:
    """Temperature that TorchRL's arguments describe; a ``min_alpha`` of 0 is none.

    >>> options = {"min_alpha": None, "max_alpha": None, "target_entropy": -1.0}
    >>> temperature_from(alpha_init=0.5, fixed_alpha=True, **options).alpha
    0.5
    """
    minimum = min_alpha or None
    if fixed_alpha:
        if not (minimum or 0.0) <= alpha_init <= (max_alpha or math.inf):
            raise ValueError(
                "`alpha_init` must lie within `min_alpha` and `max_alpha` when fixed, got "
                f"`{alpha_init}`, `{min_alpha}` and `{max_alpha}`"
            )
        return FixedTemperature(alpha=alpha_init, target_entropy=target_entropy)
    if minimum is not None and max_alpha is None:
        # TorchRL's own replacement for no upper bound: its checkpoints hold it.
        max_alpha = 1e9
    return LearnedTemperature(
        alpha=alpha_init, minimum=minimum, maximum=max_alpha, target_entropy=target_entropy
    )
