"""Films of a policy at work, as animated GIFs."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torchrl.envs import EnvBase

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import sub_seeds
from torchrl_elegant.envs.make import find_factory
from torchrl_elegant.runs.files import write_file
from torchrl_elegant.runs.policy import Policy
from torchrl_elegant.trainers.run_config import RunConfig

# Simulators render up to hundreds of frames a second; a GIF cannot show more than fifty.
_MAX_FPS = 50
_MAX_PICTURES = 1_000


def write_film(
    path: Path,
    run: RunConfig,
    policy: Policy,
    *,
    seed: int,
    env: str | Callable[..., Any] | None = None,
) -> Path:
    """Render one episode into an animated GIF, which replaces ``path`` in one step.

    ``env`` is a factory in place of the name in ``run``.
    """
    require_pictures()
    simulator = rendering_environment(run, run.env if env is None else env)
    pictures: list[Any] = []
    rate = simulator.metadata.get("render_fps", 30)
    skip = max(1, round(rate / _MAX_FPS))
    try:
        # The seed that the evaluation's environment gives its first episode.
        observation, _ = simulator.reset(seed=sub_seeds(seed, 1)[0])
        over, step = False, 0
        while not over and len(pictures) < _MAX_PICTURES:
            if step % skip == 0:
                pictures.append(_palette(_picture(simulator, run.env)))
            observation, _, terminated, truncated, _ = simulator.step(policy(observation))
            over, step = terminated or truncated, step + 1
    finally:
        simulator.close()
    film = io.BytesIO()
    pictures[0].save(
        film,
        format="gif",
        save_all=True,
        append_images=pictures[1:],
        duration=round(1_000 * skip / rate),
        loop=0,
        optimize=False,
    )
    write_file(path, film.getvalue())
    return path


def require_pictures() -> None:
    """Raise UsageError where the package that writes pictures is not installed."""
    if importlib.util.find_spec("PIL") is None:
        raise UsageError(
            "`video` needs a package that is not installed: pip install torchrl_elegant[video]"
        )


def rendering_environment(run: RunConfig, source: str | Callable[..., Any]) -> Any:
    """An environment whose pictures can be taken; UsageError where it gives none."""
    try:
        env = find_factory(source, {**run.env_kwargs, "render_mode": "rgb_array"})()
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
    from PIL import Image

    return Image.fromarray(picture).convert("P", palette=Image.Palette.ADAPTIVE)
