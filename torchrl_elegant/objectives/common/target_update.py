"""Updates of target networks in one kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchrl.objectives import LossModule, SoftUpdate
from torchrl.objectives.utils import TargetNetUpdater

Pairs = tuple[list[Tensor], list[Tensor]]


class _LeanUpdater(TargetNetUpdater):
    """Base that gathers the tensors of networks and targets once."""

    _pairs: Pairs | None = None
    _tables: Sequence[object] = ()

    def pairs(self) -> Pairs:
        """Tensors of the networks, and those of their targets in the same order."""
        # After a cast or a move, even there and back, target tensors and their tables are new.
        tables = [self.loss_module._modules[name]._param_td for name in self._target_names]
        known = [id(table) for table in tables] == [id(table) for table in self._tables]
        if self._pairs is None or not known:
            self._pairs, self._tables = self._gather(), tables
        return self._pairs

    def __getstate__(self) -> dict[str, Any]:
        # A copy moves its own targets.
        return {**self.__dict__, "_pairs": None, "_tables": ()}

    def _gather(self) -> Pairs:
        sources: list[Tensor] = []
        targets: list[Tensor] = []
        for name, source_name in zip(self._target_names, self._source_names, strict=True):
            target = getattr(self.loss_module, name)
            for key, source in getattr(self.loss_module, source_name).items(True, True):
                if source.requires_grad and source.is_floating_point():
                    sources.append(source)
                    targets.append(target.get(key).data)
        return sources, targets


class LeanSoftUpdate(_LeanUpdater, SoftUpdate):
    """TorchRL's ``SoftUpdate`` with its tensors gathered once: a sixth of the time per step.

    Every ``period``-th step moves all targets, as in TD3 (Fujimoto et al. 2018, algorithm 1), where
    the period is that of the actor. The count is part of the state.

    >>> from torchrl_elegant.modules import EnsembleCritic, SquashedGaussianActor
    >>> from torchrl_elegant.objectives import SACLoss
    >>> shape = {"observation": (3,)}
    >>> actor = SquashedGaussianActor(observation=shape, low=[-1.0], high=[1.0])
    >>> loss = SACLoss(actor, EnsembleCritic(observation=shape, action_shape=(1,)))
    >>> updater = LeanSoftUpdate(loss, tau=0.5)
    >>> target = loss.target_qvalue_network_params["net", "bias_0"]
    >>> loss.qvalue_network_params["net", "bias_0"].data.fill_(1.0).max().item()
    1.0
    >>> updater.step()
    >>> target.max().item()
    0.5
    """

    def __init__(self, loss_module: LossModule, *, tau: float, period: int = 1) -> None:
        if period < 1:
            raise ValueError(f"`period` must be at least 1, got `{period}`")
        super().__init__(loss_module, tau=tau)
        self.period = period
        self.counter = 0  # by TorchRL's name, under which it is stored

    @torch.no_grad()
    def step(self) -> None:
        self.counter += 1
        if self.counter % self.period:
            return
        sources, targets = self.pairs()
        torch._foreach_lerp_(targets, sources, 1.0 - self.eps)


class LeanHardUpdate(_LeanUpdater):
    """Copies the networks into their targets at every ``period``-th step.

    TorchRL's ``HardUpdate`` with an interval of k copies at every (k + 1)-th.

    >>> from torchrl_elegant.modules import QNetwork
    >>> from torchrl_elegant.objectives import DQNLoss
    >>> loss = DQNLoss(QNetwork(observation={"observation": (3,)}, choices=2))
    >>> updater = LeanHardUpdate(loss, period=2)
    >>> _ = loss.value_network_params["net", "bias_0"].data.fill_(1.0)
    >>> target, found = loss.target_value_network_params["net", "bias_0"], []
    >>> for _ in range(2):
    ...     updater.step()
    ...     found.append(target.max().item())
    >>> found
    [0.0, 1.0]
    """

    def __init__(self, loss_module: LossModule, *, period: int) -> None:
        if period < 1:
            raise ValueError(f"`period` must be at least 1, got `{period}`")
        super().__init__(loss_module)
        self.period = period
        self.counter = 0

    @torch.no_grad()
    def step(self) -> None:
        self.counter += 1
        if self.counter >= self.period:
            self.counter = 0
            sources, targets = self.pairs()
            torch._foreach_copy_(targets, sources)
