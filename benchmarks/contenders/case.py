"""What is timed, said once for all contenders. Needs the standard library alone."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class Case:
    """One thing to time, on as many processors for every contender.

    A contender runs only the cases whose ``kind`` it names. ``threads`` is what numeric libraries
    are told; a contender may ask for another number and says so in its name.
    """

    slug: str
    title: str
    kind: str
    env: str
    threads: int
    processors: int
    seed: int = 0
    learning_rate: float = 3e-4
    gamma: float = 0.99

    unit: ClassVar[str] = "frames/s"
    #: Units that a round has at least, however short it may be.
    least: ClassVar[int] = 1

    def encode(self) -> str:
        return json.dumps({"type": type(self).__name__} | dataclasses.asdict(self))


@dataclass(frozen=True, kw_only=True)
class OffPolicyCase(Case):
    """``kind`` is ``"update"`` (on a filled buffer) or ``"loop"`` (collection and training).

    ``ratio`` updates are owed for a frame of the loop. ``group`` frames are collected before
    their updates; in ``"update"``, as many updates are asked for in one call. ``noise`` is the
    spread of a deterministic policy's exploration, or the part of random actions. REDQ has
    ``critics``, of which ``members`` enter a target, and an actor that learns at every
    ``actor_period``-th update. ``fused`` asks for fused Adam where it is not the default.

    In TorchRL's script ``losses`` is the package that losses are imported from, or "" for steps of
    optimizers and targets alone; ``plain`` asks for Adam as its examples have it, not fused.
    """

    algorithm: str = "sac"
    width: int
    batch: int
    tau: float = 0.005
    buffer: int = 100_000
    filled: int = 5_000
    group: int = 1
    ratio: int = 1
    noise: float = 0.1
    actions: int = 0
    critics: int = 10
    members: int = 2
    actor_period: int = 20
    fused: bool = False
    losses: str = "torchrl"
    plain: bool = False
    compiled: bool = False

    @property
    def unit(self) -> str:  # type: ignore[override]
        return "updates/s" if self.kind == "update" else "frames/s"


@dataclass(frozen=True, kw_only=True)
class CollectionCase(Case):
    """Frames of a stochastic 64x64 policy, its log-probabilities kept, and no learning.

    ``kind`` is ``"one"`` (batches handed out by one process), ``"workers"`` (by one process or by
    several) or ``"free"`` (workers write to a replay buffer as fast as they can). ``envs`` are all
    environments together, shared out among ``workers`` processes where it is not 0. ``source`` is
    where ours takes its environments from: ``"ours"`` or ``"torchrl"``.
    """

    envs: int
    frames: int = 2048
    workers: int = 0
    source: str = "ours"
    compiled: bool = False


@dataclass(frozen=True, kw_only=True)
class PPOCase(Case):
    """PPO from the first frame to the last update, two batches a round at least."""

    envs: int = 8
    steps: int = 256
    minibatch: int = 64
    epochs: int = 10
    lmbda: float = 0.95
    clip: float = 0.2
    entropy: float = 0.0
    value: float = 0.5
    max_grad_norm: float = 0.5
    compiled: bool = False
    runners: int = 0

    @property
    def frames(self) -> int:
        return self.envs * self.steps

    @property
    def least(self) -> int:  # type: ignore[override]
        return 2 * self.frames


@dataclass(frozen=True, kw_only=True)
class HTermCase(Case):
    """An algorithm at its defaults. ``kind`` is ``"learn"`` (the learner alone is timed, while
    frames are collected in between) or ``"loop"``."""

    algorithm: str
    envs: int
    hterm: bool = False

    @property
    def unit(self) -> str:  # type: ignore[override]
        return "updates/s" if self.kind == "learn" else "frames/s"

    @property
    def least(self) -> int:  # type: ignore[override]
        rounds = {"ppo": {"learn": 320, "loop": 2048}, "sac": {"learn": 16, "loop": 16}}
        return 2 * rounds[self.algorithm][self.kind]


@dataclass(frozen=True, kw_only=True)
class ChasingCase(Case):
    """Rows of `ChasingEnv`. ``kind`` is ``"steps"`` (random actions, drawn before) or ``"policy"``
    (a stochastic 64x64 policy). ``way`` is how a contender steps them."""

    envs: int
    steps: int = 32
    discrete: bool = False
    way: str = ""

    unit: ClassVar[str] = "steps/s"

    @property
    def least(self) -> int:  # type: ignore[override]
        return self.envs * self.steps


@dataclass(frozen=True, kw_only=True)
class TeamCase(Case):
    """A team on VMAS. ``env`` is the scenario; ``learning_rate`` and ``gamma`` are the setting's.

    ``kind`` is ``"collect"`` (frames collected and stored), ``"update"`` (on a filled store) or
    ``"loop"``. Seconds are those of the processor, on which one thread runs: a machine that is busy
    otherwise changes them less than the clock's.
    """

    algorithm: str
    agents: int
    envs: int
    compiled: bool = False

    @property
    def unit(self) -> str:  # type: ignore[override]
        return "updates/s" if self.kind == "update" else "frames/s"


def decode(text: str) -> Case:
    """The case that ``Case.encode`` wrote."""
    fields = json.loads(text)
    kinds = (OffPolicyCase, CollectionCase, PPOCase, HTermCase, ChasingCase, TeamCase)
    types = {kind.__name__: kind for kind in kinds}
    return types[fields.pop("type")](**fields)
