"""Films of a policy at work, as animated GIFs."""

from __future__ import annotations

import importlib.util
import io
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
from torchrl.envs import EnvBase

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import Drawable, VmasTeams, sub_seeds
from torchrl_elegant.envs.make import find_factory
from torchrl_elegant.runs.policy import Policy
from torchrl_elegant.runs.team_film import NoPictureError, TeamEpisode
from torchrl_elegant.trainers.evaluation import not_finite
from torchrl_elegant.trainers.run_config import RunConfig

logger = logging.getLogger(__name__)

# Simulators render up to hundreds of frames a second; a GIF cannot show more than fifty.
_MAX_FPS = 50
_MAX_PICTURES = 1_000

# What asks for a film, and how to do without.
Asker = Literal["video", "RecordVideo"]
_MUST = {
    "video": "`video` must be false",
    "RecordVideo": "`callbacks` must be without RecordVideo",
}


def animation(
    run: RunConfig,
    policy: Policy,
    *,
    seed: int,
    env: str | Callable[..., Any] | None = None,
    asker: Asker = "video",
) -> bytes:
    """One episode as an animated GIF.

    The film ends before an episode that is longer than ``run.max_eval_steps`` or than a film.
    ``env`` is a factory in place of the name in ``run``.
    """
    require_pictures(asker)
    simulator = rendering_environment(run, run.env if env is None else env, asker)
    rate = _frame_rate(simulator)
    skip = max(1, round(rate / _MAX_FPS))
    film = _team_pictures if isinstance(simulator, Drawable) else _pictures
    try:
        pictures = film(simulator, policy, run, asker, seed=seed, skip=skip)
    finally:
        simulator.close()
    page = io.BytesIO()
    pictures[0].save(
        page,
        format="gif",
        save_all=True,
        append_images=pictures[1:],
        duration=round(1_000 * skip / rate),
        loop=0,
        optimize=False,
    )
    return page.getvalue()


def _frame_rate(simulator: Any) -> float:
    if isinstance(simulator, Drawable):
        return simulator.frame_rate()
    return simulator.metadata.get("render_fps") or 30


def _pictures(
    simulator: Any, policy: Policy, run: RunConfig, asker: Asker, *, seed: int, skip: int
) -> list[Any]:
    """Pictures of every ``skip``-th step of an episode."""
    pictures: list[Any] = []
    most = min(run.max_eval_steps, (_MAX_PICTURES - 1) * skip + 1)
    # The seed that the evaluation's environment gives its first episode.
    observation, _ = simulator.reset(seed=sub_seeds(seed, 1)[0])
    policy.reset()
    _require_finite(run.env, "observation", observation, 0)
    for step in range(most):
        if step % skip == 0:
            pictures.append(_palette(_picture(simulator, run.env, asker)))
        action = policy(observation)
        _require_finite(run.env, "action", action, step)
        observation, reward, terminated, truncated, _ = simulator.step(action)
        _require_finite(run.env, "reward", reward, step + 1)
        _require_finite(run.env, "observation", observation, step + 1)
        if terminated or truncated:
            return pictures
    _warn_of_no_end(run, most)
    return pictures


def _team_pictures(
    env: EnvBase, policy: Policy, run: RunConfig, asker: Asker, *, seed: int, skip: int
) -> list[Any]:
    """Pictures of every ``skip``-th step of a team's episode, and of its end."""
    most = min(run.max_eval_steps, (_MAX_PICTURES - 1) * skip)
    episode = TeamEpisode(env, policy, name=run.env, skip=skip)
    try:
        pictures = episode.pictures(seed, most)
    except NoPictureError as error:
        raise UsageError(f"{_MUST[asker]} for `{run.env}` here, whose {error}") from error
    if not episode.is_over:
        _warn_of_no_end(run, most)
    return [_palette(picture) for picture in pictures]


def _warn_of_no_end(run: RunConfig, most: int) -> None:
    bound = f"max_eval_steps is {most}" if most == run.max_eval_steps else "it is full"
    logger.warning(
        "the film of %s ends after %d steps, before its episode does: %s", run.env, most, bound
    )


def _require_finite(name: str, key: str, value: Any, step: int) -> None:
    """Refuse what training and evaluation refuse, too."""
    if isinstance(value, Mapping):
        for entry, part in value.items():
            _require_finite(name, entry, part, step)
        return
    array = np.asarray(value)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        broken = array[~np.isfinite(array)].flat[0]
        raise not_finite(key, broken.item(), name, f"step {step} of a film")


def require_pictures(asker: Asker) -> None:
    """Raise UsageError where the package that writes pictures is not installed."""
    if importlib.util.find_spec("PIL") is None:
        raise UsageError(
            f"`{asker}` needs a package that is not installed: pip install torchrl_elegant[video]"
        )


def rendering_environment(run: RunConfig, source: str | Callable[..., Any], asker: Asker) -> Any:
    """An environment whose pictures can be taken; UsageError where it gives none."""
    try:
        factory: Callable[..., Any] = find_factory(source, run.env_kwargs)
        env = factory() if _draws_itself(factory) else factory(render_mode="rgb_array")
    except Exception as error:
        raise UsageError(f"{_MUST[asker]} for `{run.env}`, which cannot render: {error}") from error
    if isinstance(env, Drawable):
        return env
    if isinstance(env, EnvBase):
        raise UsageError(f"{_MUST[asker]} for the TorchRL environment `{run.env}`")
    pixels = run.pixels
    return env if pixels is None else pixels.wrap(env)


def _draws_itself(factory: Callable[..., Any]) -> bool:
    """True for what needs no ``render_mode``."""
    while isinstance(factory, partial):
        factory = factory.func
    return factory is VmasTeams


def _picture(env: Any, name: str, asker: Asker) -> np.ndarray:
    try:
        picture = env.render()
    except Exception as error:
        raise UsageError(
            f"{_MUST[asker]} for `{name}` here, whose render() failed: {error}"
        ) from error
    if not isinstance(picture, np.ndarray):
        raise UsageError(
            f"{_MUST[asker]} for `{name}`, whose render() gave no picture but "
            f"{type(picture).__name__}"
        )
    return picture


def _palette(picture: np.ndarray) -> Any:
    """A third of the memory, and what a GIF holds anyway."""
    from PIL import Image

    return Image.fromarray(picture).convert("P", palette=Image.Palette.ADAPTIVE)
