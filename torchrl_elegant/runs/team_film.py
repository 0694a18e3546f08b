"""Pictures of one episode of a team, each with its step and the returns so far below it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey, TensorDictBase, unravel_key
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_elegant.functional import path_of
from torchrl_elegant.runs.policy import Policy
from torchrl_elegant.trainers.evaluation import not_finite

# Height of the strip below a picture, and of its letters.
_STRIP, _LETTERS, _MARGIN = 30, 15, 10
_INK, _PAPER = (60, 60, 60), (245, 245, 245)


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
                values = _finite(after, key, self._name, step)
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
                _finite(data, key, self._name, step)
        chosen: TensorDictBase = self._policy.acting(data)
        for key in self._env.action_keys:
            if chosen.get(key).is_floating_point():
                _finite(chosen, key, self._name, step)
        return chosen


def _finite(data: TensorDictBase, key: NestedKey, name: str, step: int) -> torch.Tensor:
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
