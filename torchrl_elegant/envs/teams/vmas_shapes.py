"""Shapes of VMAS as data: a stand-in for its module of shapes, which cannot be without a display.

Scenarios, agents and sensors of VMAS make what is to be seen of them by `vmas.simulator.rendering`,
which opens a window as it is imported. While a scene is recorded, this module has that name. The
names of functions, methods and arguments here are VMAS's.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

_NAME = "vmas.simulator.rendering"
_GRAY, _BLACK = (0.25, 0.25, 0.25), (0.15, 0.15, 0.15)
# A boundary of a world that has none in one of the two directions.
_FAR = 100.0

Array = np.ndarray


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One thing to draw, in the world's coordinates.

    `points` are corners, `[n, 2]`; of a text its middle, of an image two opposite corners, of a
    grid its spacing. `width` is that of a line, in points.
    """

    kind: Literal["area", "line", "loop", "text", "image", "grid"]
    points: Array
    color: tuple[float, ...]
    width: float = 1.0
    text: str = ""
    image: Array | None = None


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Marks of one row at one step, and the view of them.

    `origin` and `half` are the middle of the view and half of its width and height, `size` its
    width and height in points.
    """

    marks: list[Mark] = field(repr=False)
    origin: tuple[float, float]
    half: tuple[float, float]
    size: tuple[float, float]


class Transform:
    """Scale, then rotation, then translation of a shape."""

    def __init__(
        self,
        translation: Sequence[Any] = (0.0, 0.0),
        rotation: Any = 0.0,
        scale: Sequence[Any] = (1.0, 1.0),
    ) -> None:
        self.set_translation(*translation)
        self.set_rotation(rotation)
        self.set_scale(*scale)

    def set_translation(self, newx: Any, newy: Any) -> None:
        self.translation = float(newx), float(newy)

    def set_rotation(self, new: Any) -> None:
        self.rotation = float(new)

    def set_scale(self, newx: Any, newy: Any) -> None:
        self.scale = float(newx), float(newy)

    def __call__(self, points: Array) -> Array:
        cos, sin = math.cos(self.rotation), math.sin(self.rotation)
        turned = (points * self.scale) @ np.array([[cos, sin], [-sin, cos]])
        return turned + self.translation


class Geom(ABC):
    """A shape: a color, transforms, and the marks that it leaves."""

    def __init__(self) -> None:
        self.color: tuple[float, ...] = (0.0, 0.0, 0.0, 1.0)
        self.attrs: list[Transform] = []

    def add_attr(self, attr: Transform) -> None:
        self.attrs.append(attr)

    def set_color(self, r: Any, g: Any, b: Any, alpha: Any = 1.0) -> None:
        self.color = float(r), float(g), float(b), float(alpha)

    @abstractmethod
    def marks(self, view: Scene) -> Iterator[Mark]:
        """Marks of the shape; `view` is what the scene shows at least."""

    def placed(self, points: Any) -> Array:
        """Points in the world's coordinates."""
        if isinstance(points, np.ndarray):
            found = points
        else:
            found = np.array([[float(x), float(y)] for x, y in points])
        for attr in self.attrs:
            found = attr(found)
        return found


class PolyLine(Geom):
    """A line through points."""

    def __init__(self, v: Any, close: bool) -> None:
        super().__init__()
        self.v, self.close, self.width = v, close, 1.0

    def set_linewidth(self, x: float) -> None:
        self.width = x

    def marks(self, view: Scene) -> Iterator[Mark]:
        kind: Literal["loop", "line"] = "loop" if self.close else "line"
        yield Mark(kind=kind, points=self.placed(self.v), color=self.color, width=self.width)


class Line(PolyLine):
    """A line between two points."""

    def __init__(self, start: Any = (0.0, 0.0), end: Any = (0.0, 0.0), width: float = 1.0) -> None:
        super().__init__([start, end], close=False)
        self.width = width


class FilledPolygon(Geom):
    """An area, with a darker line around it."""

    def __init__(self, v: Any, draw_border: bool = True) -> None:
        super().__init__()
        self.v, self.draw_border = v, draw_border

    def marks(self, view: Scene) -> Iterator[Mark]:
        points = self.placed(self.v)
        yield Mark(kind="area", points=points, color=self.color)
        if self.draw_border:
            yield Mark(kind="loop", points=points, color=tuple(0.5 * x for x in self.color))


class Grid(Geom):
    """Lines at even distances."""

    def __init__(self, spacing: float = 0.1, length: float = 50.0, width: float = 0.5) -> None:
        super().__init__()
        self.spacing, self.width = spacing, width

    def marks(self, view: Scene) -> Iterator[Mark]:
        spacing = np.array([[self.spacing, self.spacing]])
        yield Mark(kind="grid", points=spacing, color=self.color, width=self.width)


class TextLine(Geom):
    """A text, whose place is told in points of the window."""

    def __init__(self, text: str = "", font_size: int = 15, x: Any = 0.0, y: Any = 0.0) -> None:
        super().__init__()
        self.text, self.font_size, self.place = text, font_size, (float(x), float(y))

    def set_text(self, text: str, font_size: int | None = None) -> None:
        self.text, self.font_size = text, font_size or self.font_size

    def marks(self, view: Scene) -> Iterator[Mark]:
        size, half = np.array(view.size), np.array(view.half)
        point = (2.0 * np.array(self.place) / size - 1.0) * half + view.origin
        yield Mark(
            kind="text", points=point[None], color=self.color, width=self.font_size, text=self.text
        )


class Image(Geom):
    """Colors `[height, width, 4]` from 0 to 255, the lowest row first."""

    def __init__(self, img: Array, x: float, y: float, scale: float) -> None:
        super().__init__()
        self.img, self.corner, self.scale = img, (float(x), float(y)), scale

    def marks(self, view: Scene) -> Iterator[Mark]:
        low = np.array(self.corner)
        high = low + np.array([self.img.shape[1], self.img.shape[0]]) * self.scale
        yield Mark(
            kind="image",
            points=np.stack([low, high]),
            color=self.color,
            image=self.img[::-1].clip(0, 255).astype(np.uint8),
        )


def make_circle(
    radius: Any = 10, res: int = 30, filled: bool = True, angle: float = 2 * math.pi
) -> Geom:
    """A circle, or the sector of it that is `angle` wide around the x-axis."""
    whole = angle % (2 * math.pi) == 0
    # More corners than VMAS gives them: they are seen.
    turns = angle * (np.arange(2 * res) / (2 * res) - 0.5)
    points = float(radius) * np.stack([np.cos(turns), np.sin(turns)], -1)
    return make_polygon(points if whole else np.pad(points, ((0, 1), (0, 0))), filled)


def make_polygon(v: Any, filled: bool = True, draw_border: bool = True) -> Geom:
    """An area, or the line around it."""
    return FilledPolygon(v, draw_border) if filled else PolyLine(v, close=True)


def make_polyline(v: Any) -> Geom:
    """A line through points, open at its ends."""
    return PolyLine(v, close=False)


def render_function_util(
    f: Callable[[Array], Any],
    plot_range: Any,
    precision: float = 0.01,
    cmap_range: Sequence[float | None] | None = None,
    cmap_alpha: float = 1.0,
    cmap_name: str = "viridis",
) -> Image:
    """Values of `f` over the plane as colors; `f` takes places `[n, 2]`."""
    x, y = (plot_range, plot_range) if isinstance(plot_range, int | float) else plot_range
    (x_low, x_high), (y_low, y_high) = _span(x), _span(y)
    xs, ys = np.arange(x_low, x_high, precision), np.arange(y_low, y_high, precision)
    places = np.stack(np.meshgrid(xs, ys), -1)
    values = f(places.reshape(-1, 2))
    values = values.cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    values = values.reshape(*places.shape[:2], -1)
    if values.shape[-1] == 1:
        from matplotlib import colormaps

        low, high = cmap_range or (None, None)
        low = values.min() if low is None else low
        high = values.max() if high is None else high
        shade = (values[..., 0] - low) / max(high - low, 1e-5)
        values = colormaps[cmap_name](shade.clip(0.0, 1.0), alpha=cmap_alpha)
    return Image(255.0 * values, x=x_low, y=y_low, scale=precision)


def _span(given: Any) -> tuple[float, float]:
    """Lowest and highest number of a range, which VMAS also tells by its half."""
    low, high = (-given, given) if isinstance(given, int | float) else given
    return float(low), float(high)


def recorded_scene(env: Any, row: int) -> Scene:
    """Scene of one row of an environment of VMAS, as its window would show it."""
    scenario, world = env.scenario, env.world
    size = float(scenario.viewer_size[0]), float(scenario.viewer_size[1])
    origin = np.array([float(each) for each in scenario.render_origin])
    zoom, ratio = scenario.viewer_zoom, size[0] / size[1]
    least = zoom * np.array([max(ratio, 1.0), max(1.0 / ratio, 1.0)])
    places = torch.stack([agent.state.pos[row] for agent in world.agents]).cpu().numpy()
    widest = max(agent.shape.circumscribed_radius() for agent in world.agents)
    farthest = np.abs(places - origin).max(0) + 2.0 * widest
    half = least * max(zoom, *(farthest / least))
    usual = Scene(marks=[], origin=tuple(origin), half=tuple(least * zoom), size=size)
    with _recorded():
        shapes = [*_background(scenario, world), *scenario.extra_render(row)]
        shapes += [shape for entity in world.entities for shape in entity.render(env_index=row)]
    marks = [mark for shape in shapes for mark in shape.marks(usual)]
    return Scene(marks=marks, origin=tuple(origin), half=tuple(half), size=size)


def _background(scenario: Any, world: Any) -> Iterator[Geom]:
    limits = world.x_semidim, world.y_semidim
    if scenario.visualize_semidims and limits != (None, None):
        x, y = (_FAR if limit is None else float(limit) for limit in limits)
        around = PolyLine([(-x, -y), (-x, y), (x, y), (x, -y)], close=True)
        around.set_color(*_GRAY)
        yield around
    if scenario.plot_grid:
        grid = Grid(spacing=scenario.grid_spacing)
        grid.set_color(*_BLACK, alpha=0.3)
        yield grid


@contextmanager
def _recorded() -> Iterator[None]:
    """Let this module stand where VMAS looks for its shapes."""
    import vmas.simulator as package

    before = sys.modules.get(_NAME)
    sys.modules[_NAME] = package.rendering = sys.modules[__name__]
    try:
        yield
    finally:
        if before is None:
            del sys.modules[_NAME], package.rendering
        else:
            sys.modules[_NAME] = package.rendering = before
