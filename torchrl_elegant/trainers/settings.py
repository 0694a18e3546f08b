"""What a configuration decides in a built learner, against what a checkpoint remembers."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import Parameter

from torchrl_elegant.trainers.learner import Learner

# Hyper-parameters that losses keep as buffers, and so write into every checkpoint.
_DECIDED = frozenset(
    {
        *("_target_entropy", "target_entropy", "target_entropy_buffer"),
        *("alpha_init", "min_log_alpha", "max_log_alpha"),
        *("clip_epsilon", "clip_value", "critic_coeff", "entropy_coeff"),
    }
)
_ESTIMATOR = "_value_estimator."


class Settings:
    """Learning rates, discount and entropy settings of a learner, to be set again after a load.

    What is learnt stays with the checkpoint: a learnt temperature is a parameter, a fixed one is a
    setting.

    >>> from torchrl_elegant.algorithms import SACConfig
    >>> from torchrl_elegant.envs import make_env
    >>> env = make_env("Pendulum-v1")
    >>> old, new = (Learner(SACConfig(actor_lr=lr).build(env)) for lr in (0.1, 0.2))
    >>> settings = Settings(new)
    >>> new.load_state_dict(old.state_dict())
    >>> settings.restore()
    >>> new.optimizer.param_groups[0]["lr"]
    0.2
    """

    def __init__(self, learner: Learner) -> None:
        self._learner = learner
        self._groups: list[dict[str, Any]] = [
            {name: value for name, value in group.items() if name != "params"}
            for group in learner.optimizer.param_groups
        ]
        self._buffers = {name: value.clone() for name, value in self._decided().items()}

    def restore(self) -> None:
        """Set everything that is configured to what it was when this was made."""
        for group, settings in zip(self._learner.optimizer.param_groups, self._groups, strict=True):
            group.update(settings)
        found = self._decided()
        for name, value in self._buffers.items():
            found[name].copy_(value)

    def _decided(self) -> dict[str, Tensor]:
        loss = self._learner.loss
        # The state holds buffers that are made when they are first asked for.
        state = loss.state_dict(keep_vars=True)
        fixed = {"log_alpha"} - dict(loss.named_parameters()).keys()
        return {
            name: value
            for name, value in state.items()
            if name in _DECIDED or name in fixed or _is_estimators(name, value)
        }


def _is_estimators(name: str, value: Tensor) -> bool:
    # V-trace holds the actor too, and that is learnt.
    return name.startswith(_ESTIMATOR) and not isinstance(value, Parameter)
