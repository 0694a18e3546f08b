"""What the studies of algorithms with a replay buffer share."""

from __future__ import annotations

from dataclasses import replace

from _interleave import Contender

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
