"""Treatment of pictures before a policy sees them: render, grayscale, resize, stack."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from torchrl_elegant.config.machine import require_memory
from torchrl_elegant.config.options import check_options, option
from torchrl_elegant.envs.older_gym import first_observation, gymnasium_reset
from torchrl_elegant.envs.spaces import environment_name
from torchrl_elegant.functional import LUMA, area_weights, has_channels_last, is_image

_Path = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Pixels:
    """Options of how the pictures of a Gymnasium environment are treated.

    Pictures leave channels first, as bytes or in the type of the environment. Other entries of a
    dict observation stay as they are. An episode starts with a stack of copies of its first
    picture; the newest picture of a stack is the last. A resized pixel is the mean of the area that
    it covers.

    >>> drawn = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    >>> pixels = Pixels(source="render", frame_stack=4, grayscale=True, resize=84)
    >>> pixels.wrap(drawn).observation_space.shape
    (4, 84, 84)
    """

    source: Literal["observed", "render"] = option(
        "observed", "render: learn from what the environment draws, not from what it observes"
    )
    frame_stack: int = option(1, "pictures in a row that make one observation", low=1)
    grayscale: bool = option(False, "brightness in place of three colors")
    resize: int | None = option(None, "pixels a side of pictures; none: as they come", low=1)

    def __post_init__(self) -> None:
        check_options(self)

    def arguments(self) -> dict[str, str]:
        """Arguments that the environment is made with."""
        return {"render_mode": "rgb_array"} if self.source == "render" else {}

    def wrap(self, env: gymnasium.Env) -> gymnasium.Env:
        """The environment with its pictures treated, for plain Gymnasium loops as well."""
        if not isinstance(env, gymnasium.Env):
            raise ValueError(
                f"`pixels` must be None with a TorchRL environment, got `{self}`; append TorchRL's "
                "transforms (PermuteTransform, GrayScale, Resize, CatFrames) in its factory"
            )
        return PixelWrapper(env, self)


class PixelWrapper(gymnasium.Wrapper):
    """A Gymnasium environment whose pictures are treated as its `Pixels` ask."""

    def __init__(self, env: gymnasium.Env, pixels: Pixels) -> None:
        super().__init__(env)
        self._renders = pixels.source == "render"
        self._eyes: dict[_Path, _Eye] = {}
        seen = _rendered_space(env) if self._renders else env.observation_space
        self.observation_space = self._treated(seen, pixels, ())
        if not self._eyes:
            raise ValueError(
                f"`pixels` must be None for {environment_name(env)}, whose observations hold no "
                f"picture, got `{pixels}`; set pixels.source=render to learn from what it draws"
            )

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """As Gymnasium's; every stack begins with copies of the first picture."""
        with gymnasium_reset(self.env):
            result = self.env.reset(**kwargs)
        observation, info = first_observation(result, self.env), result[1]
        for eye in self._eyes.values():
            eye.forget()
        return self._see(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """As Gymnasium's."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._see(observation), reward, terminated, truncated, info

    def _see(self, observation: Any) -> Any:
        return self._shown(self.env.render() if self._renders else observation, ())

    def _shown(self, observation: Any, path: _Path) -> Any:
        if path in self._eyes:
            return self._eyes[path].see(observation)
        if isinstance(observation, Mapping):
            return {name: self._shown(observation[name], (*path, name)) for name in observation}
        return observation

    def _treated(self, space: spaces.Space, pixels: Pixels, path: _Path) -> spaces.Space:
        if isinstance(space, spaces.Dict):
            entries = space.spaces.items()
            return spaces.Dict({k: self._treated(v, pixels, (*path, k)) for k, v in entries})
        if not (isinstance(space, spaces.Box) and is_image(_with_channels(space))):
            return space
        self._eyes[path] = eye = _Eye(space, pixels, name=environment_name(self.env))
        return eye.space


class _Eye:
    """The treatment of one picture of an observation, and the frames it has seen."""

    def __init__(self, space: spaces.Box, pixels: Pixels, *, name: str) -> None:
        self._shape = shape = _with_channels(space)
        self._last = has_channels_last(shape)
        height, width, channels = shape if self._last else (*shape[1:], shape[0])
        self._luma = pixels.grayscale and channels != 1
        if self._luma and channels != 3:
            raise ValueError(
                f"`grayscale` must be false for {name}, whose pictures have {channels} channels, "
                "not 3"
            )
        _check_size(pixels, height, width, channels * space.dtype.itemsize)
        side, self._rows, self._columns = pixels.resize, None, None
        if side is not None and (height, width) != (side, side):
            self._rows, self._columns = area_weights(height, side), area_weights(width, side)
            height, width = side, side
        self._dtype = space.dtype
        self._frames: deque[np.ndarray] = deque(maxlen=pixels.frame_stack)
        channels = (1 if self._luma else channels) * pixels.frame_stack
        low, high = space.low.min(), space.high.max()
        self.space = spaces.Box(low, high, (channels, height, width), space.dtype)

    def forget(self) -> None:
        self._frames.clear()

    def see(self, picture: np.ndarray) -> np.ndarray:
        """The newest frames `[stack * channels, height, width]`, in memory of their own."""
        frame = self._treat(np.asarray(picture).reshape(self._shape))
        most = self._frames.maxlen or 1
        self._frames.extend([frame] * (1 if self._frames else most))
        return np.concatenate(self._frames)

    def _treat(self, picture: np.ndarray) -> np.ndarray:
        x = picture if self._last else picture.transpose(1, 2, 0)
        if self._luma or self._rows is not None:
            x = x.astype(np.float32)
            if self._rows is not None:
                # Rows first: each later step then has less to do.
                x = np.tensordot(self._rows, x, 1)
            if self._luma:
                x = (x @ LUMA)[..., None]
            if self._columns is not None:
                x = np.matmul(self._columns, x)
            x = np.rint(x) if np.issubdtype(self._dtype, np.integer) else x
        return x.transpose(2, 0, 1).astype(self._dtype)


def _check_size(pixels: Pixels, height: int, width: int, channels: int) -> None:
    side = pixels.resize
    if side is not None:
        weights = side * max(height, width) * 8
        require_memory("pixels.resize", weights + side * side * channels, f"a side of {side}")
        height = width = side
    # A space keeps two of its observations, as bounds.
    needed = 3 * height * width * channels * pixels.frame_stack
    given = f"{pixels.frame_stack} pictures of {height} x {width} pixels"
    require_memory("pixels.frame_stack", needed, given)


def treated(factory: Callable[[], gymnasium.Env], pixels: Pixels) -> gymnasium.Env:
    """Make an environment and wrap it; with `partial` as picklable as the factory."""
    return pixels.wrap(factory())


def _with_channels(space: spaces.Box) -> tuple[int, ...]:
    """Shape with a channel: a matrix of bytes is a picture of one channel."""
    shape = space.shape
    return (*shape, 1) if len(shape) == 2 and space.dtype == np.uint8 else shape


def _rendered_space(env: gymnasium.Env) -> spaces.Box:
    if env.render_mode != "rgb_array":
        raise ValueError(
            f"`render_mode` of {environment_name(env)} must be rgb_array to learn from what it "
            f"draws, got `{env.render_mode}`; hand it on in the factory"
        )
    with gymnasium_reset(env):
        env.reset()
    picture: Any = env.render()
    return spaces.Box(0, 255, np.shape(picture), np.uint8)
