"""What an algorithm's configuration builds."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from tensordict.nn import TensorDictModuleBase
from torchrl.objectives import LossModule
from torchrl.objectives.utils import TargetNetUpdater

from torchrl_elegant.algorithms.preparation import Preparation
from torchrl_elegant.algorithms.ramp import Ramp
from torchrl_elegant.algorithms.schedule import ActorSchedule, EveryUpdate
from torchrl_elegant.objectives import HamiltonianTerm
from torchrl_elegant.objectives.return_fit import ReturnFit


@dataclass(kw_only=True)
class Parts:
    """What an algorithm builds for one environment; a learner is made of it.

    ``prepare`` stands between data and loss; ``return_fit`` and ``hterm`` are terms beside the
    loss's own.
    ``ramps`` are set to the run's progress after each batch of frames. ``target_kl``, of losses
    with a ``divergence``, is how far a policy may move before the epochs over its rollout end.
    """

    policy: TensorDictModuleBase
    loss: LossModule
    optimizer: torch.optim.Optimizer
    target_updater: TargetNetUpdater | None = None
    schedule: ActorSchedule = field(default_factory=EveryUpdate)
    ramps: tuple[Ramp, ...] = ()
    prepare: Preparation | None = None
    return_fit: ReturnFit | None = None
    hterm: HamiltonianTerm | None = None
    target_kl: float | None = None
    max_grad_norm: float | None = None
