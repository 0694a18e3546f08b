"""Tasks of Isaac Gym by their names, under the interpreter that Isaac Gym needs."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch

from torchrl_elegant.envs.batched.vectask import VecTaskEnv
from torchrl_elegant.envs.batched.vectask_bridge import BridgedTask
from torchrl_elegant.envs.batched.vectask_server import (
    MANUAL,
    POST_PHYSICS,
    PRE_PHYSICS,
    SAME_STEP,
    STYLES,
)

#: Style of each task of IsaacGymEnvs, from its source.
RESETS: Mapping[str, str] = {
    **dict.fromkeys(
        ("Ant", "Anymal", "Cartpole", "FrankaCabinet", "FrankaCubeStack", "Humanoid"), POST_PHYSICS
    ),
    **dict.fromkeys(
        (
            *("AllegroHand", "AllegroKuka", "AllegroKukaTwoArms", "BallBalance"),
            *("FactoryTaskGears", "FactoryTaskInsertion", "FactoryTaskNutBoltPick"),
            *("FactoryTaskNutBoltPlace", "FactoryTaskNutBoltScrew"),
            *("IndustRealTaskGearsInsert", "IndustRealTaskPegsInsert"),
            *("Ingenuity", "Quadcopter", "ShadowHand", "Trifinger"),
        ),
        PRE_PHYSICS,
    ),
    "AnymalTerrain": SAME_STEP,
    "HumanoidAMP": MANUAL,
}

#: Environment variable that names the interpreter where no argument does.
PYTHON = "ISAACGYM_PYTHON"


def make_isaacgym(
    task: str,
    *,
    num_envs: int = 1,
    device: torch.device | str = "cuda:0",
    seed: int | None = None,
    resets: str | None = None,
    python: str | None = None,
    start_timeout: float = 600.0,
    timeout: float = 60.0,
    **arguments: Any,
) -> VecTaskEnv:
    """Makes a task of IsaacGymEnvs, unmodified, in a process under its own interpreter.

    Not yet run on a GPU.

    Args:
        task: as `isaacgymenvs.make` names it.
        num_envs: rows.
        device: of the simulation, and of the tensors here.
        seed: of the simulator, and of all random numbers of its process; None takes one from the
            operating system.
        resets: style of the task (`VecTaskEnv`); known for the tasks in `RESETS`.
        python: Python 3.6 to 3.8 with Isaac Gym and IsaacGymEnvs; by default the environment
            variable `ISAACGYM_PYTHON` names it.
        start_timeout, timeout: seconds that the simulator may take to start, and for a step.
        **arguments: further ones of `isaacgymenvs.make`.
    """
    style = RESETS.get(task) if resets is None else resets
    if style is None:
        raise ValueError(
            f"`resets` must be given for isaacgym/{task}, whose style is not known: one of "
            f"{', '.join(STYLES)}; known are the tasks {', '.join(sorted(RESETS))}"
        )
    python = python or os.environ.get(PYTHON)
    if python is None:
        raise ImportError(
            f"isaacgym/{task} needs Isaac Gym Preview 4 and IsaacGymEnvs, whose binaries end at "
            f"Python 3.8: install both there, and name it by env_kwargs.python=/path/to/python3.8 "
            f"or the environment variable {PYTHON}"
        )
    if seed is None:
        seed = secrets.randbits(31)
    given = {"headless": True, "force_render": False, **arguments}
    places = {"sim_device": str(device), "rl_device": str(device)}
    source = BridgedTask(
        python,
        "isaacgymenvs:make",
        {"task": task, "num_envs": num_envs, "seed": seed, **places, **given},
        resets=style,
        seed=seed,
        device=device,
        first=["isaacgym"],  # it refuses to be imported after torch
        start_timeout=start_timeout,
        timeout=timeout,
    )
    return VecTaskEnv(source)


class IsaacGymTasks(Mapping[str, Any]):
    """Factories of Isaac Gym's tasks by their names; any name is taken, with its `resets`.

    The known ones are listed where `ISAACGYM_PYTHON` names an interpreter.
    """

    def __getitem__(self, name: str) -> Any:
        return partial(make_isaacgym, name)

    def __iter__(self) -> Iterator[str]:
        return iter(RESETS if PYTHON in os.environ else ())

    def __len__(self) -> int:
        return len(list(iter(self)))
