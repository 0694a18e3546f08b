"""This package in TorchRL's Hydra groups: `loss`, `collector` and `trainer`.

After ``register_groups()`` a TorchRL trainer's YAML can say ``loss: modsac``, ``collector:
elegant_sync`` or ``trainer: elegant_sac``. The fields are those of the constructors and
configuration dataclasses, and so are the defaults: none is written here.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from copy import copy
from dataclasses import MISSING, dataclass, field, fields, make_dataclass
from functools import partial
from typing import Any

from torchrl.data import ReplayBuffer

from torchrl_elegant.algorithms import ALGORITHMS, OffPolicyConfig
from torchrl_elegant.collectors import AsyncCollector, SyncCollector
from torchrl_elegant.objectives import ModSACLoss, SACLoss
from torchrl_elegant.trainers.config import RunConfig
from torchrl_elegant.trainers.config_file import build
from torchrl_elegant.trainers.train import TrainResult, run_with

LOSSES = {"elegant_sac": SACLoss, "modsac": ModSACLoss}
COLLECTORS = {"elegant_sync": SyncCollector, "elegant_async": AsyncCollector}
_HERE = __name__


def register_groups() -> None:
    """Store all nodes; may be called again. Needs ``pip install torchrl_elegant[hydra]``."""
    try:
        from hydra.core.config_store import ConfigStore
    except ImportError as error:
        raise ImportError("Hydra is missing: pip install torchrl_elegant[hydra]") from error
    store = ConfigStore.instance()
    for name, loss in LOSSES.items():
        store.store(group="loss", name=name, node=_loss_node(loss))
    for name, collector in COLLECTORS.items():
        store.store(group="collector", name=name, node=_collector_node(name, collector))
    for name in ALGORITHMS:
        store.store(group="trainer", name=f"elegant_{name}", node=_trainer_node(name))


@dataclass(frozen=True, kw_only=True)
class ElegantTrainer:
    """What ``trainer: elegant_<algorithm>`` is instantiated to: a run that waits for ``train``."""

    run: RunConfig
    config: OffPolicyConfig

    def train(self) -> TrainResult:
        """Train; see ``torchrl_elegant.train``."""
        return run_with(self.run, self.config, None)


def make_loss(kind: str, gamma: float | None = None, **arguments: Any) -> SACLoss:
    """The loss called ``kind``, with its value estimator's discount where one is given."""
    loss = LOSSES[kind](**arguments)
    if gamma is not None:
        loss.make_value_estimator(gamma=gamma)
    return loss


def make_collector(
    kind: str, *, exploration_type: str | None = None, **arguments: Any
) -> SyncCollector | AsyncCollector:
    """The collector called ``kind``."""
    from torchrl.envs.utils import ExplorationType

    if exploration_type is not None:
        arguments["exploration_type"] = ExplorationType.from_str(exploration_type)
    buffer = arguments.get("replay_buffer")
    if buffer is not None and not isinstance(buffer, ReplayBuffer):
        arguments["replay_buffer"] = buffer()
    return COLLECTORS[kind](**arguments)


def make_trainer(algorithm: str, **values: Any) -> ElegantTrainer:
    """A run of ``algorithm``; ``values`` are fields of both configurations."""
    run_names = {item.name for item in fields(RunConfig)}
    plain = {name: _plain(value) for name, value in values.items()}
    run = {name: value for name, value in plain.items() if name in run_names}
    rest = {name: value for name, value in plain.items() if name not in run_names}
    return ElegantTrainer(run=build(RunConfig, run), config=build(ALGORITHMS[algorithm], rest))


def _loss_node(loss: type[SACLoss]) -> type:
    kind = next(name for name, known in LOSSES.items() if known is loss)
    entries = {"gamma": None}
    for owner in reversed([cls for cls in loss.__mro__ if issubclass(cls, SACLoss)]):
        entries |= _signature(owner)
    return _node(f"{loss.__name__}Config", "make_loss", {"kind": kind} | entries)


def _collector_node(kind: str, collector: type) -> type:
    entries: dict[str, Any] = {"exploration_type": None}
    for owner in reversed(collector.__mro__):
        if "__init__" in vars(owner) and owner.__module__.startswith("torchrl_elegant"):
            entries |= _signature(owner)
    return _node(f"{collector.__name__}Config", "make_collector", {"kind": kind} | entries)


def _trainer_node(algorithm: str) -> type:
    entries: dict[str, Any] = {"algorithm": algorithm}
    for config in (RunConfig, ALGORITHMS[algorithm]):
        for item in fields(config):
            factory = item.default_factory
            given = item.default if factory is MISSING else factory()
            entries[item.name] = list(given) if isinstance(given, tuple) else given
    return _node(f"Elegant{algorithm.title()}TrainerConfig", "make_trainer", entries)


def _signature(owner: type) -> dict[str, Any]:
    """Named arguments and defaults of a constructor; ``???``, Hydra's must-give, where none."""
    parameters = list(inspect.signature(vars(owner)["__init__"]).parameters.values())[1:]
    named = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    return {p.name: "???" if p.default is p.empty else p.default for p in named}


def _node(name: str, target: str, entries: Mapping[str, Any]) -> type:
    every = {"_target_": f"{_HERE}.{target}", "_partial_": False, **entries}
    return make_dataclass(
        name, [(key, Any, field(default_factory=partial(copy, every[key]))) for key in every]
    )


def _plain(value: Any) -> Any:
    """OmegaConf's containers as the plain data that configurations take."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        return value
    return tuple(_plain(item) for item in value)
