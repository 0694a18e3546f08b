"""What the studies of algorithms with a replay buffer share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from _interleave import Contender
from contenders.case import OffPolicyCase

WIDE = {"width": 256, "batch": 256, "threads": 2, "processors": 2}
NARROW = {"width": 64, "batch": 64, "threads": 1, "processors": 1}

OURS = Contender(name="torchrl_elegant", module="off_policy.ours", imports=("torchrl_elegant",))
COMPILED = replace(OURS, name="torchrl_elegant, compiled", options={"compiled": True})
TORCHRL = Contender(name="TorchRL", module="off_policy.torchrl", imports=("torchrl",))
SB3 = Contender(
    name="Stable-Baselines3",
    module="off_policy.sb3",
    python="peers",
    imports=("stable_baselines3", "mujoco"),
)
SB3_FUSED = replace(SB3, name="Stable-Baselines3, fused Adam", options={"fused": True})
SBX = Contender(
    name="SBX (compiled JAX)", module="off_policy.sbx", python="peers", imports=("sbx", "mujoco")
)


def case_of(algorithm: str, kind: str, slug: str, **options: Any) -> OffPolicyCase:
    """A case with the title that its options make."""
    threads, width, batch = (options[name] for name in ("threads", "width", "batch"))
    what = {"update": "updates at the sizes of", "loop": "training loop, an update a frame,"}[kind]
    return OffPolicyCase(
        slug=slug,
        title=f"{algorithm.upper()}, {what} {options['env']}, {width}x{width}, batch {batch}, "
        f"{threads} thread{'s' * (threads > 1)}",
        kind=kind,
        algorithm=algorithm,
        **options,
    )


def at_once(contender: Contender, *kinds: str) -> Contender:
    """The same, but with 16 updates in one call, and in the loop after 16 frames."""
    options = contender.options | {"group": 16}
    name = f"{contender.name}, 16 at once"
    return replace(contender, name=name, options=options, kinds=kinds or contender.kinds)
