"""Lineage of a tournament as a picture: who went on from whom."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

from torchrl_elegant.runs.pages import COLORS
from torchrl_elegant.tournament.views.drawing import DRAWN, Axis, element, label, left_margin
from torchrl_elegant.tournament.views.standings import Row, Standings, score_text, short

#: Members that one picture can hold and stay readable.
MOST = 64
_OTHERS = COLORS[-1]
_WIDTH, _TOP, _RIGHT = 960.0, 34.0, 64.0
_STYLE = """<style>svg { color: #1f2328; background: #ffffff; }
@media (prefers-color-scheme: dark) { svg { color: #e3e6ea; background: #15181c; } }</style>"""


def lineage_colors(standings: Standings) -> dict[int, str]:
    """A color for each lineage that has trained most; all others share one.

    That of the winner, or of whoever leads, comes first.
    """
    sizes = Counter(row.lineage for row in standings.pods.values() if row.member is not None)
    leader = standings.leader()
    first = [] if leader is None else [leader.lineage]
    order = [*first, *(root for root, _ in sizes.most_common() if root not in first)]
    found = dict.fromkeys(order, _OTHERS)
    return found | dict(zip(order, COLORS[:-1], strict=False))


def lineage_picture(folder: Path) -> str:
    """The lineage of a tournament as an SVG file, on light ground and on dark."""
    standings = Standings(folder)
    try:
        standings.look()
        drawn = tree(standings, lineage_colors(standings))
    finally:
        standings.close()
    place = drawn.index(">") + 1
    return f"{drawn[:place]}{_STYLE}{drawn[place:]}\n"


def shown_members(standings: Standings) -> list[int]:
    """Members in the picture: those of the winner's path, and the best."""
    path = {row.member for row in standings.ancestry(standings.leader())}
    every = sorted(
        standings.newest,
        key=lambda one: (one not in path, one not in standings.best, -_best(standings, one), one),
    )
    return sorted(every[:MOST])


def shown_pods(standings: Standings) -> list[Row]:
    """Pods of the members in the picture."""
    members = set(shown_members(standings))
    return [row for row in standings.pods.values() if row.member in members]


def tree(standings: Standings, colors: Mapping[int, str]) -> str:
    """The lineage as an SVG element: members from top to bottom, depth from left to right."""
    members = shown_members(standings)
    shown = shown_pods(standings)
    if not shown:
        return ""
    deepest = max(row.depth for row in shown)
    high = 28.0 if len(members) <= 16 else 15.0
    names = [f"member {member}" for member in members]
    # Failures stand before the dots.
    left = left_margin(names) + 18
    width = min(_WIDTH - left - _RIGHT, 110.0 * max(1, deepest - 1))
    x = Axis(low=1, high=max(2, deepest), start=left, end=left + width, least=1.0)
    rows = {member: _TOP + high * place for place, member in enumerate(members)}
    places = {
        row.id: (x.at(row.depth + _behind(standings, row)), rows[row.member])
        for row in shown
        if row.member in rows
    }
    step = width / max(1, deepest - 1)
    size = max(1.2, min(5.0, step / 4, high / 3))
    path = {row.id for row in standings.ancestry(standings.leader())}
    parts = [label(4, y + 4, name) for name, y in zip(names, rows.values(), strict=True)]
    parts += [
        label(place, _TOP - 16, text, 'text-anchor="middle"')
        for place, text in x.ticks(min(deepest, int(width / 45) or 1))
        if int(text) <= deepest
    ]
    parts.append(label(4, _TOP - 16, "depth"))
    parts += [f"<g {DRAWN}>", *_edges(shown, places, colors, path, size), "</g>"]
    parts += [_node(row, places[row.id], colors, size) for row in shown]
    leader = standings.leader()
    if leader is not None and leader.id in places:
        at, y = places[leader.id]
        ring = f'<circle cx="{at}" cy="{y}" r="{size + 3.5:g}" fill="none" stroke="currentColor"/>'
        told = "winner" if standings.is_over else "leads"
        parts += [ring, label(at + size + 7, y - size - 2, told, 'font-weight="600"')]
    return element(left + width + _RIGHT, _TOP + high * len(members), parts)


def _behind(standings: Standings, row: Row) -> float:
    """Part of a step that a pod stands behind its depth: one made of others of the same depth."""
    same = any(standings.pods[parent].depth == row.depth for parent in row.ancestors)
    return 0.45 if same else 0.0


def _edges(
    shown: list[Row],
    places: Mapping[int, tuple[float, float]],
    colors: Mapping[int, str],
    path: Collection[int],
    size: float,
) -> list[str]:
    """Lines from parents to children, a path for each color, and the winner's below them."""
    lines: dict[str, list[str]] = {}
    highlighted = []
    for row in shown:
        for parent in row.ancestors:
            if parent not in places:
                continue
            (x1, y1), (x2, y2) = places[parent], places[row.id]
            middle = round((x1 + x2) / 2, 1)
            bend = f"H{x2}" if y1 == y2 else f"C{middle} {y1} {middle} {y2} {x2} {y2}"
            lines.setdefault(colors[row.lineage], []).append(f"M{x1} {y1}{bend}")
            if row.id in path and parent in path:
                highlighted.append(f"M{x1} {y1}{bend}")
    wide = f'stroke="currentColor" stroke-opacity=".28" stroke-width="{2 * size:g}"'
    thin = f'stroke-width="{max(0.8, size / 3):.1f}"'
    drawn = [f'<path d="{"".join(highlighted)}" {wide}/>'] if highlighted else []
    return drawn + [
        f'<path d="{"".join(pieces)}" stroke="{color}" {thin}/>' for color, pieces in lines.items()
    ]


def _node(row: Row, place: tuple[float, float], colors: Mapping[int, str], size: float) -> str:
    x, y = place
    options = ", ".join(f"{word}={short(value)}" for word, value in row.values.items())
    score = score_text(row) or row.state
    told = html.escape(f"pod {row.id} ({row.algorithm}), {row.origin}: {score}; {options}")
    color = colors[row.lineage]
    if row.state == "failed":
        # It is at the depth of the one that its member trains next, and stands before it.
        x = round(x - 2.2 * size, 1)
        long = 2 * size
        cross = f"M{x - size} {y - size}l{long} {long}m0 {-long}l{-long} {long}"
        return f'<path d="{cross}" stroke="{color}" fill="none"><title>{told}</title></path>'
    fill = color if row.state == "done" else "none"
    look = f'fill="{fill}" stroke="{color}"'
    if row.operation in ("initial", "switch"):
        side = 2 * size
        corner = f'x="{x - size:.1f}" y="{y - size:.1f}" width="{side:g}" height="{side:g}"'
        return f"<rect {corner} {look}><title>{told}</title></rect>"
    return f'<circle cx="{x}" cy="{y}" r="{size:g}" {look}><title>{told}</title></circle>'


def _best(standings: Standings, member: int) -> float:
    row = standings.best.get(member)
    return 0.0 if row is None else float(row.score or 0.0)
