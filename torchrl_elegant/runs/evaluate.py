"""Evaluate and film the policy that a run left."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from torchrl.envs import EnvBase

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import sub_seeds
from torchrl_elegant.envs.make import find_factory
from torchrl_elegant.runs.policy import Policy
from torchrl_elegant.runs.train import stored_run
from torchrl_elegant.trainers.environments import Environments
from torchrl_elegant.trainers.evaluation import Evaluation, PolicyEvaluator
from torchrl_elegant.trainers.run_config import RunConfig

# Simulators render up to hundreds of frames a second; a GIF cannot show more than fifty.
_MAX_FPS = 50
_MAX_PICTURES = 1_000


def evaluate_run(
    folder: str | Path,
    *,
    episodes: int = 20,
    policy: Literal["final", "best"] = "final",
    seed: int = 1_000,
    video: bool = False,
) -> tuple[Evaluation, Path | None]:
    """Play whole episodes with the deterministic policy; the film's path, if one was asked for."""
    folder = Path(folder)
    _, run, _ = stored_run(folder, option="run")
    loaded = Policy.load(policy_path(folder, policy))
    # First, because what cannot be filmed should not cost an evaluation to find out.
    film = write_film(folder / "video.gif", run, loaded, seed=seed) if video else None
    environments = Environments(run)
    try:
        env = environments.alone(episodes, seed)
    except (ValueError, TypeError, ImportError) as error:
        raise UsageError(str(error)) from error
    try:
        return PolicyEvaluator(env, loaded.actor, episodes=episodes).evaluate(), film
    finally:
        environments.close()


def policy_path(folder: str | Path, policy: Literal["final", "best"]) -> Path:
    """The file of a run's policy; UsageError where there is none yet."""
    path = Path(folder) / ("policy.pt" if policy == "final" else "policy_best.pt")
    if not path.is_file():
        raise UsageError(
            f"`run` must hold {path.name}, got {str(folder)!r} without; it is written with the "
            "first checkpoint"
        )
    return path


def write_film(path: Path, run: RunConfig, policy: Policy, *, seed: int) -> Path:
    """Render one episode into an animated GIF."""
    env = _rendering_environment(run)
    pictures: list[Any] = []
    rate = env.metadata.get("render_fps", 30)
    skip = max(1, round(rate / _MAX_FPS))
    try:
        # The seed that the evaluation's environment gives its first episode.
        observation, _ = env.reset(seed=sub_seeds(seed, 1)[0])
        over, step = False, 0
        while not over and len(pictures) < _MAX_PICTURES:
            if step % skip == 0:
                pictures.append(_palette(_picture(env, run.env)))
            observation, _, terminated, truncated, _ = env.step(policy(observation))
            over, step = terminated or truncated, step + 1
    finally:
        env.close()
    pictures[0].save(
        path,
        save_all=True,
        append_images=pictures[1:],
        duration=round(1_000 * skip / rate),
        loop=0,
        optimize=False,
    )
    return path


def _rendering_environment(run: RunConfig) -> Any:
    try:
        env = find_factory(run.env, {**run.env_kwargs, "render_mode": "rgb_array"})()
    except Exception as error:
        raise UsageError(
            f"`video` must be false for `{run.env}`, which cannot render: {error}"
        ) from error
    if isinstance(env, EnvBase):
        raise UsageError(f"`video` must be false for the TorchRL environment `{run.env}`")
    pixels = run.pixels
    return env if pixels is None else pixels.wrap(env)


def _picture(env: Any, name: str) -> np.ndarray:
    try:
        picture = env.render()
    except Exception as error:
        raise UsageError(
            f"`video` must be false for `{name}` here, whose render() failed: {error}"
        ) from error
    if not isinstance(picture, np.ndarray):
        raise UsageError(
            f"`video` must be false for `{name}`, whose render() gave no picture but "
            f"{type(picture).__name__}"
        )
    return picture


def _palette(picture: np.ndarray) -> Any:
    """A third of the memory, and what a GIF holds anyway."""
    try:
        from PIL import Image
    except ImportError as error:
        raise UsageError(
            "`video` needs a package that is not installed: pip install torchrl_elegant[video]"
        ) from error
    return Image.fromarray(picture).convert("P", palette=Image.Palette.ADAPTIVE)
