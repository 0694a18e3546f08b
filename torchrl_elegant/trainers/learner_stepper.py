"""The same learner inside TorchRL's own ``Trainer``."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from types import MethodType
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.trainers import OptimizationStepper, Trainer

from torchrl_elegant.objectives.common.update_loss import UpdateLoss
from torchrl_elegant.objectives.common.whole_loss import as_update_loss
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.loss_adapter import TrainerLoss

logger = logging.getLogger(__name__)


class LearnerStepper(OptimizationStepper):
    """Lets ``torchrl.trainers.Trainer`` call ``Learner.update``.

    The loss is evaluated through the trainer's ``compute_loss``, so that its Ray learners average
    gradients as for any other stepper. The learner moves its own target networks and priorities:
    give the trainer no ``optimizer`` and no ``target_net_updater``. Learner and trainer must hold
    the same loss object. A learner that wants to see what is collected, such as one with the
    H-term or with running scales, is shown each batch before the trainer's own hooks are. What
    moves over a run, such as an exploration rate, moves with the trainer's frames.

    A learner with ``compile=True`` computes its compiled loss itself. A trainer that computes
    losses in a way of its own, as Ray's learners do, gets a warning, and plain updates.

    >>> from torchrl_elegant.algorithms import SACConfig
    >>> from torchrl_elegant.envs import make_env
    >>> learner = Learner(SACConfig(num_cells=(8,)).assemble(make_env("Pendulum-v1")))
    >>> LearnerStepper(learner).optimizer_step_count
    0
    """

    updates_replay_priority = True

    def __init__(self, learner: Learner) -> None:
        self.learner, self._loss = learner, as_update_loss(learner.loss)
        self._last: dict[str, Tensor] = {}
        self._shown = not learner.sees_every_row
        self._told = False

    def register(self, trainer: Trainer, name: str = "optimization_stepper") -> None:
        super().register(trainer, name)
        if self.learner.observes:
            trainer.register_op("batch_process", self._show)

    @property
    def optimizer_step_count(self) -> int:
        """Updates made, read by TorchRL's weight-update hook."""
        return self.learner.updates

    def step(self, trainer: Trainer, sub_batch: TensorDictBase) -> TensorDictBase:
        if trainer.loss_module is not self.learner.loss:
            raise ValueError(
                f"`loss_module` must be the learner's own loss, got another "
                f"`{type(trainer.loss_module).__name__}`; pass learner.loss to the Trainer"
            )
        if not self._shown:
            raise RuntimeError(
                "the learner must be shown all that is collected, got updates and no batch: the "
                "H-term and running scales need a trainer that hands batches over, which one with "
                "async_collection or with Ray's learners does not"
            )
        if 0 < trainer.total_frames < math.inf:
            self.learner.at(min(1.0, trainer.collected_frames / trainer.total_frames))
        metrics = self.learner.update(sub_batch, self._through(trainer))
        buffer = getattr(trainer, "replay_buffer", None)
        if buffer is not None and hasattr(buffer, "update_tensordict_priority"):
            buffer.update_tensordict_priority(sub_batch)
        return self._complete(metrics)

    def state_dict(self) -> dict[str, Any]:
        return self.learner.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.learner.load_state_dict(state_dict)

    def _through(self, trainer: Trainer) -> UpdateLoss | None:
        """The loss as ``trainer`` evaluates it; None for the learner's own, which is compiled."""
        if self.learner.compiles:
            # TorchRL's method calls the loss and does nothing else.
            if trainer.compute_loss == MethodType(Trainer.compute_loss, trainer):
                return None
            if not self._told:
                self._told = True
                logger.warning(
                    "not compiled, and slower for it: %s computes losses in a way of its own",
                    type(trainer).__name__,
                )
        return TrainerLoss(self._loss, trainer)

    def _show(self, batch: TensorDictBase) -> TensorDictBase:
        self.learner.observe(batch)
        self._shown = True
        return batch

    def _complete(self, metrics: dict[str, Tensor]) -> TensorDict:
        """Add the terms that this update left out, as they last were, NaN before their first value.

        The trainer averages over its updates and needs the same names from each.
        """
        for name in self.learner.metric_names:
            last = self._last.get(name, torch.tensor(torch.nan))
            self._last[name] = metrics.get(name, last)
        return TensorDict({**self._last, **metrics}, batch_size=[])
