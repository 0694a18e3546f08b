"""Pictures of recorded scenes, drawn without a display."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from torchrl_elegant.envs.teams.vmas_shapes import Mark, Scene

# Longer side of a picture; everything is drawn larger, and made smaller for smooth edges.
_SIDE, _FINER = 480, 2
# Width of a window of VMAS, whose lines and letters are as wide here in proportion.
_USUAL = 700.0


@runtime_checkable
class Drawable(Protocol):
    """TorchRL environment of which films can be made."""

    def frame_rate(self) -> float:
        """Steps in a second of the simulated world."""

    def scene(self, row: int = 0) -> Any:
        """Scene of one row now; `pictures` draws it."""

    def pictures(self, scenes: Sequence[Any]) -> list[np.ndarray]:
        """Pictures of scenes of one episode, `[height, width, 3]`."""


def draw_scenes(scenes: Sequence[Scene]) -> list[np.ndarray]:
    """Pictures `[height, width, 3]` of scenes under one camera, which shows all agents in each.

    >>> import numpy as np
    >>> corners = np.array([[-1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [-1.0, 1.0]])
    >>> red = Mark(kind="area", points=corners, color=(1.0, 0.0, 0.0, 1.0))
    >>> view = {"origin": (0.0, 0.0), "half": (1.0, 1.0), "size": (700.0, 700.0)}
    >>> (picture,) = draw_scenes([Scene(marks=[red], **view)])
    >>> picture.shape, picture[100, 100].tolist(), picture[300, 300].tolist()
    ((480, 480, 3), [255, 0, 0], [255, 255, 255])
    """
    half = np.max([scene.half for scene in scenes], 0)
    return [_Sheet(scene, half).picture() for scene in scenes]


class _Sheet:
    """Paper on which one scene is drawn."""

    def __init__(self, scene: Scene, half: np.ndarray) -> None:
        from PIL import Image, ImageDraw

        self._images: Any = Image
        size = np.array(scene.size) * _SIDE / max(scene.size)
        # Films want even numbers.
        self._size = size.astype(int) // 2 * 2 * _FINER
        self._scale = max(self._size) / _USUAL
        self._half, self._origin, self._scene = half, np.array(scene.origin), scene
        self._paper = Image.new("RGB", tuple(self._size.tolist()), "white")
        self._pen: Any = ImageDraw.Draw(self._paper, "RGBA")

    def picture(self) -> np.ndarray:
        ways: dict[str, Callable[[Mark], None]] = {
            "area": self._area,
            "line": self._line,
            "loop": self._line,
            "text": self._text,
            "image": self._image,
            "grid": self._grid,
        }
        for mark in self._scene.marks:
            ways[mark.kind](mark)
        return np.asarray(self._paper.reduce(_FINER))

    def _places(self, points: np.ndarray) -> list[tuple[float, float]]:
        # Rows of a picture count from above.
        share = ((points - self._origin) / self._half * [1.0, -1.0] + 1.0) / 2.0
        return [(x, y) for x, y in (share * self._size).tolist()]

    def _area(self, mark: Mark) -> None:
        self._pen.polygon(self._places(mark.points), fill=_color(mark))

    def _line(self, mark: Mark) -> None:
        places = self._places(mark.points)
        if mark.kind == "loop":
            # Beyond the beginning, so that its corner is joined as the others are.
            places += places[:2]
        self._pen.line(places, fill=_color(mark), width=self._width(mark), joint="curve")

    def _text(self, mark: Mark) -> None:
        from PIL import ImageFont

        font = ImageFont.load_default(mark.width * self._scale)
        (place,) = self._places(mark.points)
        self._pen.text(place, mark.text, fill=_color(mark), font=font, anchor="mm")

    def _image(self, mark: Mark) -> None:
        (left, bottom), (right, top) = self._places(mark.points)
        image = self._images.fromarray(mark.image)
        size = max(1, round(right - left)), max(1, round(bottom - top))
        image = image.resize(size, self._images.Resampling.BILINEAR)
        self._paper.paste(image, (round(left), round(top)), image)

    def _grid(self, mark: Mark) -> None:
        low, high = self._origin - self._half, self._origin + self._half
        for axis, spacing in enumerate(mark.points[0]):
            for place in np.arange(np.ceil(low[axis] / spacing), high[axis] / spacing) * spacing:
                ends = np.stack([low, high])
                ends[:, axis] = place
                self._pen.line(self._places(ends), fill=_color(mark), width=self._width(mark))

    def _width(self, mark: Mark) -> int:
        return max(1, round(mark.width * self._scale))


def _color(mark: Mark) -> tuple[int, ...]:
    return tuple(round(255 * min(max(each, 0.0), 1.0)) for each in mark.color)
