"""Pictures as SVG texts: axes, lines and dots, in the page's own color."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Point = tuple[float, float]
# Pixels that a letter of a label takes, at most.
_LETTER = 6.4


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Numbers from ``low`` to ``high`` as places from ``start`` to ``end``, in pixels.

    >>> Axis(low=1.0, high=100.0, start=0.0, end=10.0, is_log=True).at(10.0)
    5.0
    """

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False
    #: Least distance of two ticks: 1 for what is counted.
    least: float = 0.0
    #: Names of the places 0, 1, 2, ..., where these are no numbers.
    names: tuple[str, ...] = ()

    @classmethod
    def over(
        cls, values: Sequence[float], start: float, end: float, *, is_log: bool = False
    ) -> Axis:
        """An axis that holds all values, with a little room at both ends."""
        low, high = min(values), max(values)
        if is_log:
            room = (high / low) ** 0.04 if high > low else 2.0
            return cls(low=low / room, high=high * room, start=start, end=end, is_log=True)
        room = 0.04 * (high - low) or 0.05 * abs(high) or 1.0
        return cls(low=low - room, high=high + room, start=start, end=end)

    def at(self, value: float) -> float:
        """Place of a number."""
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return round(self.start + (value - low) / (high - low) * (self.end - self.start), 1)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Places of round numbers, about ``most`` of them, and their texts."""
        if self.names:
            return [(self.at(place), name) for place, name in enumerate(self.names)]
        values = _decades(self.low, self.high) if self.is_log else []
        if len(values) < 2:
            values = _rounds(self.low, self.high, max(self.least, (self.high - self.low) / most))
        skip = max(1, math.ceil(len(values) / most))
        return [(self.at(value), number(value)) for value in values[::skip]]


def _rounds(low: float, high: float, near: float) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten; ``near`` is about their distance.

    >>> _rounds(0.0, 99.0, 19.0)
    [0.0, 20.0, 40.0, 60.0, 80.0]
    """
    power = 10.0 ** math.floor(math.log10(near))
    step = next(power * part for part in (1, 2, 5, 10) if power * part >= 0.85 * near)
    first = math.ceil(low / step)
    count = int((high - first * step) / step) + 1
    return [round((first + place) * step, 12) for place in range(count)]


def _decades(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    parts = (1, 2, 5) if last - first <= 3 else (1,)
    every = (part * 10.0**power for power in range(first, last + 1) for part in parts)
    return [value for value in every if low <= value <= high]


def number(value: float) -> str:
    """A number in few letters.

    >>> number(20_000.0), number(0.00001), number(2_500_000.0), number(-0.5)
    ('20k', '1e-5', '2.5M', '-0.5')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size <= abs(value) < 1e12:
            return f"{value / (1_000 if letter == 'k' else size):.4g}{letter}"
    return f"{value:.4g}".replace("e-0", "e-").replace("e+0", "e")


@dataclass
class Plot:
    """Lines and dots between two axes.

    Args:
        x, y: axes; the picture is as wide and high as they need, labels included.
        x_label, y_label: what they tell.

    >>> axis = Axis(low=0.0, high=1.0, start=40.0, end=90.0)
    >>> plot = Plot(axis, Axis(low=0.0, high=1.0, start=60.0, end=10.0), "frames", "score")
    >>> plot.line([(0.0, 0.0), (1.0, 1.0)], "red")
    >>> "M40.0 60.0L90.0 10.0" in plot.svg()
    True
    """

    x: Axis
    y: Axis
    x_label: str
    y_label: str
    parts: list[str] = field(default_factory=list)

    def line(self, points: Iterable[Point], color: str, width: float = 1.2, more: str = "") -> None:
        """A line through points."""
        self.path([self.joined(points)], color, width, more)

    def path(self, pieces: Iterable[str], color: str, width: float = 1.2, more: str = "") -> None:
        """Pieces from ``joined`` and ``dots``, as one element."""
        data = "".join(pieces)
        if data:
            style = f'stroke="{color}" stroke-width="{width:g}" {more}'.rstrip()
            self.parts.append(f'<path d="{data}" {style}/>')

    def joined(self, points: Iterable[Point]) -> str:
        """Points as a piece of a path."""
        at_x, at_y = self.x.at, self.y.at
        text = "L".join(f"{at_x(x)} {at_y(y)}" for x, y in points)
        return f"M{text}" if text else ""

    def dots(self, points: Iterable[Point]) -> str:
        """Points as dots: lines without length, whose round ends are what is seen."""
        return "".join(f"M{self.x.at(x)} {self.y.at(y)}h0" for x, y in points)

    def svg(self) -> str:
        """The picture as an element of a page."""
        x, y = self.x, self.y
        frame = []
        for place, text in y.ticks(6):
            frame.append(
                _rule(x.start, place, x.end, place) + _text(x.start - 7, place, text, "end")
            )
        for place, text in x.ticks(int((x.end - x.start) / (90 if x.end > 400 else 44))):
            frame.append(_rule(place, y.start, place, y.end))
            frame.append(_text(place, y.start + 16, text, "middle"))
        frame.append(_text((x.start + x.end) / 2, y.start + 34, self.x_label, "middle"))
        frame.append(_text(2, y.end - 14, self.y_label, "start"))
        name = f"c{len(self.parts)}-{x.end:.0f}-{y.start:.0f}"
        clip = (
            f'<clipPath id="{name}"><rect x="{x.start}" y="{y.end - 3}" '
            f'width="{x.end - x.start + 4}" height="{y.start - y.end + 6}"/></clipPath>'
        )
        body = f'<g clip-path="url(#{name})" {DRAWN}>{"".join(self.parts)}</g>'
        return element(x.end + 8, y.start + 42, [clip, *frame, body])


#: Attributes of groups of lines and dots.
DRAWN = 'fill="none" stroke-linecap="round" stroke-linejoin="round"'


def element(width: float, height: float, parts: Iterable[str]) -> str:
    """An SVG element of some size, in the color and the letters of what is around it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-size="11" '
        f'font-family="system-ui, sans-serif" role="img">{"".join(parts)}</svg>'
    )


def left_margin(texts: Iterable[str]) -> float:
    """Room for labels beside an axis."""
    return max(34.0, 12 + _LETTER * max(map(len, texts), default=0))


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path d="M{x1} {y1}L{x2} {y2}" stroke="currentColor" opacity=".15"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return label(x, y + 4, text, f'text-anchor="{anchor}"')


def label(x: float, y: float, text: str, more: str = "") -> str:
    """A text, whatever is in it; ``y`` is that of its base line."""
    told = html.escape(text)
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="currentColor" {more}>{told}</text>'
