"""Films of a policy at work, of one agent or of a team, as animated GIFs."""

from __future__ import annotations

import importlib.util
import io
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from tensordict import NestedKey, TensorDictBase, unravel_key
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import Drawable, VmasTeams, sub_seeds
from torchrl_elegant.envs.make import find_factory
from torchrl_elegant.functional import path_of
from torchrl_elegant.runs.policy import Policy
from torchrl_elegant.trainers.evaluation import not_finite
from torchrl_elegant.trainers.run_config import RunConfig

logger = logging.getLogger(__name__)

# Simulators render up to hundreds of frames a second; a GIF cannot show more than fifty.
_MAX_FPS = 50
_MAX_PICTURES = 1_000
# Height of the strip below a picture, and of its letters.
_STRIP, _LETTERS, _MARGIN = 30, 15, 10
_INK, _PAPER = (60, 60, 60), (245, 245, 245)

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


class NoPictureError(RuntimeError):
    """An environment that cannot be drawn after all."""


class TeamEpisode:
    """One episode of the first row of an environment, with a policy's best actions.

    Args:
        env: a `Drawable` one, of one or more rows.
        policy: acts for all its groups.
        name: of the environment, for errors.
        skip: of so many steps one becomes a picture.
    """

    def __init__(self, env: EnvBase, policy: Policy, *, name: str, skip: int) -> None:
        self._env, self._policy, self._name, self._skip = env, policy, name, skip
        self.is_over = False

    def pictures(self, seed: int, most: int) -> list[np.ndarray]:
        """Play up to `most` steps from `seed` on."""
        self._env.set_seed(seed)
        self._policy.reset()
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            scenes, captions = zip(*self._played(most), strict=True)
        drawn: list[np.ndarray] = self._env.pictures(scenes)
        return [with_caption(*each) for each in zip(drawn, captions, strict=True)]

    def _played(self, most: int) -> Iterator[tuple[Any, str]]:
        env, data = self._env, self._env.reset()
        totals = dict.fromkeys(map(unravel_key, env.reward_keys), 0.0)
        yield self._scene(), _caption(0, totals)
        for step in range(1, most + 1):
            stepped = env.step(self._decided(data, step - 1))
            after = stepped.get("next")
            for key in totals:
                values = _finite_entry(after, key, self._name, step)
                totals[key] += float(values[0].mean())
            self.is_over = bool(after.get("done")[0])
            if self.is_over or step % self._skip == 0:
                yield self._scene(), _caption(step, totals)
            if self.is_over:
                return
            data = env.maybe_reset(env.step_mdp(stepped))

    def _scene(self) -> Any:
        try:
            scene = self._env.scene(0)
        except Exception as error:
            raise NoPictureError(f"scene() failed: {error}") from error
        if scene is None:
            raise NoPictureError("scene() gave no picture; it needs render_mode='rgb_array'")
        return scene

    def _decided(self, data: TensorDictBase, step: int) -> TensorDictBase:
        for key, spec in self._env.observation_spec.items(True, True):
            if spec.dtype is not None and spec.dtype.is_floating_point:
                _finite_entry(data, key, self._name, step)
        chosen: TensorDictBase = self._policy.acting(data)
        for key in self._env.action_keys:
            if chosen.get(key).is_floating_point():
                _finite_entry(chosen, key, self._name, step)
        return chosen


def _finite_entry(data: TensorDictBase, key: NestedKey, name: str, step: int) -> torch.Tensor:
    values: torch.Tensor = data.get(key)
    if not bool(values.isfinite().all()):
        broken = values[~values.isfinite()][0].item()
        raise not_finite(key, broken, name, f"step {step} of a film")
    return values


def _caption(step: int, totals: dict[NestedKey, float]) -> str:
    """Step, and the return of each group: the mean over its agents."""
    if len(totals) == 1:
        (only,) = totals.values()
        return f"step {step}    return {only:.2f}"
    parts = [f"{path_of(key)[0]} {total:.2f}" for key, total in totals.items()]
    return f"step {step}    returns: " + ", ".join(parts)


def with_caption(picture: np.ndarray, text: str) -> np.ndarray:
    """A picture with a line of text below it.

    >>> with_caption(np.zeros((100, 200, 3), np.uint8), "step 3").shape
    (130, 200, 3)
    """
    from PIL import Image, ImageDraw, ImageFont

    height, width, _ = picture.shape
    paper = Image.new("RGB", (width, height + _STRIP), _PAPER)
    paper.paste(Image.fromarray(picture), (0, 0))
    place = (_MARGIN, height + _STRIP / 2)
    font = ImageFont.load_default(_LETTERS)
    ImageDraw.Draw(paper).text(place, text, fill=_INK, font=font, anchor="lm")
    return np.asarray(paper)
