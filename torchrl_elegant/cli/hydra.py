"""Hydra nodes for TorchRL's groups `loss`, `collector` and `trainer`.

After ``register_groups()`` a TorchRL trainer's YAML can say ``loss: modsac``, ``collector:
elegant_sync`` or ``trainer: elegant_sac``. The fields are those of the constructors and
configuration dataclasses, and so are the defaults: none is written here. An algorithm registered
later is there after another call.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field, is_dataclass, make_dataclass
from functools import partial
from typing import Any

from torchrl.collectors import Collector
from torchrl.data import ReplayBuffer
from torchrl.objectives import LossModule

from torchrl_elegant.algorithms import ALGORITHMS, AlgorithmConfig
from torchrl_elegant.collectors import AsyncCollector, SyncCollector
from torchrl_elegant.collectors.workers.arguments import WORKER_OPTIONS
from torchrl_elegant.config.changes import build, read_page
from torchrl_elegant.config.options import options_of
from torchrl_elegant.objectives import (
    A2CLoss,
    ClipPPOLoss,
    DDPGLoss,
    DiscreteSACLoss,
    DQNLoss,
    ModSACLoss,
    REDQLoss,
    SACLoss,
    TD3Loss,
)
from torchrl_elegant.runs.train import TrainResult, run_with
from torchrl_elegant.trainers.run_config import RunConfig

LOSSES: dict[str, type[LossModule]] = {
    "elegant_a2c": A2CLoss,
    "elegant_ddpg": DDPGLoss,
    "elegant_discrete_sac": DiscreteSACLoss,
    "elegant_dqn": DQNLoss,
    "elegant_modsac": ModSACLoss,
    "elegant_ppo": ClipPPOLoss,
    "elegant_redq": REDQLoss,
    "elegant_sac": SACLoss,
    "elegant_td3": TD3Loss,
    "modsac": ModSACLoss,
}
COLLECTORS = {"elegant_sync": SyncCollector, "elegant_async": AsyncCollector}
_HERE = __name__


def register_groups() -> None:
    """Store all nodes; needs the extra ``hydra``. Call again for algorithms registered since."""
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
    """A run that waits for ``train``; ``trainer: elegant_<algorithm>`` is instantiated to it."""

    run: RunConfig
    config: AlgorithmConfig

    def train(self) -> TrainResult:
        """Train; see ``torchrl_elegant.train``."""
        return run_with(self.run, self.config, None)


def make_loss(kind: str, gamma: float | None = None, **arguments: Any) -> LossModule:
    """The loss called ``kind``, with its value estimator's discount where one is given."""
    loss = LOSSES[kind](**arguments)
    if gamma is not None:
        loss.make_value_estimator(gamma=gamma)
    return loss


def make_collector(
    kind: str, *, exploration_type: str | None = None, **arguments: Any
) -> SyncCollector | AsyncCollector:
    """The collector called ``kind``, told only what differs from its own defaults."""
    from torchrl.envs.utils import ExplorationType

    known = _collector_arguments(COLLECTORS[kind])
    arguments = {
        name: _plain(value)
        for name, value in arguments.items()
        if name not in known or not _is_same(value, known[name])
    }
    if exploration_type is not None:
        arguments["exploration_type"] = ExplorationType.from_str(exploration_type)
    buffer = arguments.get("replay_buffer")
    if buffer is not None and not isinstance(buffer, ReplayBuffer):
        arguments["replay_buffer"] = buffer()
    return COLLECTORS[kind](**arguments)


def make_trainer(algorithm: str, **values: Any) -> ElegantTrainer:
    """A run of ``algorithm``; ``values`` are fields of both configurations, groups as mappings."""
    own, kind = options_of(RunConfig), ALGORITHMS[algorithm]
    plain = {name: _plain(value) for name, value in values.items()}
    run = {name: value for name, value in plain.items() if name in own}
    rest = {name: value for name, value in plain.items() if name not in own}
    return ElegantTrainer(
        run=build(RunConfig, read_page(RunConfig, run)), config=build(kind, read_page(kind, rest))
    )


def _loss_node(loss: type[LossModule]) -> type:
    kind = next(name for name, known in LOSSES.items() if known is loss)
    entries = {"gamma": None}
    for owner in reversed(_takers(loss)):
        entries |= _signature(owner)
    return _node(f"{loss.__name__}Config", "make_loss", {"kind": kind} | entries)


def _takers(loss: type[LossModule]) -> list[type]:
    """The classes whose constructors share a loss's arguments: each hands on what it does not know,
    the last one knows them all."""
    takers: list[type] = []
    for owner in loss.__mro__:
        if "__init__" in vars(owner):
            takers.append(owner)
            kinds = {p.kind for p in inspect.signature(owner).parameters.values()}
            if inspect.Parameter.VAR_KEYWORD not in kinds:
                break
    return takers


def _collector_node(kind: str, collector: type) -> type:
    # YAML has no enumerations: its name is given, or none for the constructor's default.
    entries = {"kind": kind} | _collector_arguments(collector) | {"exploration_type": None}
    return _node(f"{collector.__name__}Config", "make_collector", entries)


def _collector_arguments(collector: type) -> dict[str, Any]:
    """All that a constructor takes, with what it hands on to TorchRL's collector."""
    theirs = _signature(Collector)
    if collector is AsyncCollector:
        theirs = {name: theirs[name] for name in theirs if name in WORKER_OPTIONS}
    return theirs | _signature(collector)


def _trainer_node(algorithm: str) -> type:
    entries: dict[str, Any] = {"algorithm": algorithm}
    for config in (RunConfig, ALGORITHMS[algorithm]):
        for name, item in options_of(config).items():
            entries[name] = _yaml_default(item.default)
    return _node(f"Elegant{algorithm.title()}TrainerConfig", "make_trainer", entries)


def _signature(owner: type) -> dict[str, Any]:
    """Named arguments and defaults of a constructor; ``???``, Hydra's must-give, where none."""
    parameters = list(inspect.signature(vars(owner)["__init__"]).parameters.values())[1:]
    named = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    return {p.name: "???" if p.default is p.empty else p.default for p in named}


def _node(name: str, target: str, entries: Mapping[str, Any]) -> type:
    every = {"_target_": f"{_HERE}.{target}", "_partial_": False, **entries}
    return make_dataclass(
        name, [(key, Any, field(default_factory=partial(deepcopy, every[key]))) for key in every]
    )


def _yaml_default(value: Any) -> Any:
    from omegaconf import OmegaConf

    value = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    if isinstance(value, Mapping):
        # Its keys are the environment's to know, so that new ones need no `+`.
        return OmegaConf.create(dict(value), flags={"struct": False})
    return list(value) if isinstance(value, tuple) else value


def _is_same(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, (bool, int, float, str)) and value == default)


def _plain(value: Any) -> Any:
    """OmegaConf's containers as plain data."""
    from omegaconf import OmegaConf

    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
