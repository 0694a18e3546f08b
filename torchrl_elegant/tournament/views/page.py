"""Page `report.html` of a tournament: what has happened so far, or how it went."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Any

from torchrl_elegant.runs.pages import COLORS, page
from torchrl_elegant.tournament.views.drawing import Axis, Plot, Point, left_margin
from torchrl_elegant.tournament.views.lineage import lineage_colors, shown_members, shown_pods, tree
from torchrl_elegant.tournament.views.standings import Row, Standings, score_text, short

#: Seconds after which a browser loads the page of a running tournament anew.
RELOAD = 10
# Most rows of tables, and most options that are drawn.
_RANKS, _FAILURES, _OPTIONS = 100, 30, 24
_OTHERS = COLORS[-1]
_INK = "currentColor"
_STYLE = """
.swatch { display: inline-block; width: .8em; height: .8em; margin: 0 .35em 0 1.1em; }
td .swatch { margin: 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; }
dd { margin: 0; }
.key { white-space: nowrap; }
.small { display: flex; flex-wrap: wrap; gap: 1rem; }
th, td { padding: .3rem .55rem; }
tr:has(+ .more) td { border-bottom: none; }
.more td { white-space: normal; padding-top: 0; opacity: .8; }
.error { white-space: pre-wrap; overflow-wrap: anywhere; }
"""


def report_page(standings: Standings, *, is_running: bool) -> str:
    """The page as a text; it needs no other file and no network.

    Args:
        standings: what is told, as of their last look.
        is_running: whether a browser is to load it again and again.
    """
    title = f"Tournament on {standings.env}" if standings.env else "Tournament"
    colors = lineage_colors(standings)
    parts = [f"<h1>{html.escape(title)}</h1>", _facts(standings, is_running=is_running)]
    if standings.newest:
        legend, cut = _legend(standings, colors), _cut(standings)
        parts += ["<h2>Leaderboard</h2>", _leaderboard(standings, colors)]
        if standings.best:
            parts += ["<h2>Scores</h2>", legend, _figure(_scores(standings, colors), _SCORES + cut)]
        parts += ["<h2>Lineage</h2>", legend]
        parts.append(_figure(tree(standings, colors), _LINEAGE + cut))
        drawn = _options(standings, colors)
        if drawn:
            parts += ["<h2>Options</h2>", legend, f'<div class="small">{"".join(drawn)}</div>']
            parts.append(f"<p>{_DRIFT}{cut}</p>")
    if standings.failed:
        parts += ["<h2>Failures</h2>", _failures(standings)]
    return page(title, "\n".join(parts), style=_STYLE, reload=RELOAD if is_running else None)


def _facts(standings: Standings, *, is_running: bool) -> str:
    config, counts, used = standings.config, standings.counts, standings.used
    pods = [f"{counts[one]} {one}" for one in ("done", "running", "queued", "ended", "failed")]
    share = f"{100 * used / standings.budget:.0f} %"
    state = "finished" if standings.is_over else "running" if is_running else "not finished"
    facts = {
        "State": f"{state}, {_as_of(standings)}",
        "Algorithms": ", ".join(standings.algorithms),
        "Budget": f"{used:,.0f} of {standings.budget:,.0f} {config['unit']} used ({share})",
        "Pods": ", ".join(text for text in pods if not text.startswith("0 ")) or "none yet",
        "Members": f"{config['population']:,}; selection: {config['selection']}"
        if "population" in config
        else "",
    }
    for row in standings.finals()[:1] if standings.is_over else ():
        facts["Winner"] = (
            f"pod {row.ancestors[0]} ({row.algorithm}), return {score_text(row)} over "
            f"{row.episodes} episodes that no pod has seen"
        )
    items = (f"<dt>{name}</dt><dd>{html.escape(text)}</dd>" for name, text in facts.items() if text)
    return f"<dl>{''.join(items)}</dl>"


def _as_of(standings: Standings) -> str:
    ends = [row.ended for row in standings.pods.values() if row.ended]
    if not ends:
        return "no pod has ended yet"
    first = datetime.fromisoformat(next(iter(standings.pods.values())).created)
    last = datetime.fromisoformat(max(ends))
    minutes = (last - first).total_seconds() / 60
    return f"{minutes:,.1f} minutes until {last:%Y-%m-%d %H:%M:%S} UTC"


def _leaderboard(standings: Standings, colors: Mapping[int, str]) -> str:
    finals = {row.ancestors[0]: row for row in standings.finals()}
    head = (
        *("rank", "member", "best pod", "algorithm", "depth", "return", "episodes", "frames"),
        *("new episodes", "how"),
    )
    rows, options = [], []
    for rank, row in enumerate(standings.ranked()[:_RANKS], 1):
        final = finals.get(row.id)
        words = " ".join(f"{word}={short(value)}" for word, value in row.values.items())
        options.append(html.escape(words))
        cells = (
            *(str(rank), str(row.member), str(row.id), row.algorithm, str(row.depth)),
            *(score_text(row), str(row.episodes or ""), f"{row.frames or 0:,}"),
            *("" if final is None else score_text(final), row.origin),
        )
        rows.append((_swatch(colors[row.lineage]), *map(html.escape, cells)))
    hidden = len(standings.best) - len(rows)
    more = f"<p>{hidden:,} more members are left out.</p>" if hidden > 0 else ""
    return _table(("", *head), rows, options) + more


def _failures(standings: Standings) -> str:
    rows = [
        (
            *(str(row.id), "" if row.member is None else str(row.member), html.escape(row.origin)),
            *(html.escape(row.algorithm), str(row.depth)),
            f'<span class="error">{html.escape(row.error or "")}</span>',
        )
        for row in reversed(standings.failed[-_FAILURES:])
    ]
    hidden = len(standings.failed) - len(rows)
    more = f"<p>{hidden:,} older ones are left out.</p>" if hidden > 0 else ""
    return _table(("pod", "member", "how", "algorithm", "depth", "reason"), rows) + more


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], below: Sequence[str] = ()) -> str:
    """A table of markup; ``below`` has a line for each row, which is as wide as the table."""
    top = "".join(f"<th>{name}</th>" for name in head)
    lines = ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows]
    more = f'<tr class="more"><td></td><td colspan="{len(head) - 1}">{{}}</td></tr>'
    for place, text in reversed(list(enumerate(below, 1))):
        if text:
            lines.insert(place, more.format(text))
    body = "\n".join(lines)
    return (
        f'<div class="wide"><table><thead><tr>{top}</tr></thead>\n<tbody>\n{body}\n</tbody></table>'
        "</div>"
    )


def _swatch(color: str) -> str:
    return f'<span class="swatch" style="background: {color}"></span>'


def _legend(standings: Standings, colors: Mapping[int, str]) -> str:
    parts = []
    for root, color in colors.items():
        if color == _OTHERS:
            break
        algorithm = html.escape(standings.pods[root].algorithm)
        parts.append(f"{_swatch(color)}from pod {root} ({algorithm})")
    others = len(colors) - len(parts)
    if others:
        parts.append(f"{_swatch(_OTHERS)}{others} others")
    items = " ".join(f'<span class="key">{part}</span>' for part in parts)
    return f"<p>Lineages:{items}</p>"


def _figure(drawing: str, caption: str) -> str:
    return f'<figure class="wide">{drawing}<figcaption>{html.escape(caption)}</figcaption></figure>'


def _cut(standings: Standings) -> str:
    shown, every = len(shown_members(standings)), len(standings.newest)
    return f" {shown} of {every} members are shown." if shown < every else ""


def _scores(standings: Standings, colors: Mapping[int, str]) -> str:
    """Scores over the frames that a policy has seen, a line for each member."""
    done = [row for row in shown_pods(standings) if _is_scored(row)]
    scores = sorted(float(row.score or 0.0) for row in done)
    # A few that fell far below all others would press the rest flat.
    low, high = scores[len(scores) // 20], scores[-1]
    low = max(scores[0], low - (high - low))
    x = Axis.over([0.0, *(float(row.frames or 0) for row in done)], 0.0, 1.0)
    y = Axis.over([low, high], 300.0, 24.0)
    left = left_margin(text for _, text in y.ticks(6))
    x = Axis(low=0.0, high=x.high, start=left, end=880.0)
    plot = Plot(x, y, "frames of the policy", "score")
    lines: dict[str, list[str]] = {}
    before: dict[int, Row] = {}
    for row in done:
        assert row.member is not None
        last = before.get(row.member)
        piece = plot.dots([_at(row)]) if last is None else plot.joined([_at(last), _at(row)])
        lines.setdefault(colors[row.lineage], []).append(piece)
        before[row.member] = row
    # Gray ones first, so that those with a color lie above.
    for color, pieces in sorted(lines.items(), key=lambda item: item[0] != _OTHERS):
        plot.path(pieces, color, 1.3, 'opacity=".75"')
        plot.path([plot.dots(_at(row) for row in done if colors[row.lineage] == color)], color, 3.5)
    path = standings.ancestry(standings.leader())
    plot.line([_at(row) for row in path if _is_scored(row)], _INK, 5.0, 'opacity=".28"')
    best: list[Point] = []
    for row in sorted(done, key=_at):
        if not best or row.score is None or row.score > best[-1][1]:
            best += [(float(row.frames or 0), best[-1][1])] if best else []
            best.append(_at(row))
    plot.line([*best, (x.high, best[-1][1])], _INK, 1.6, 'stroke-dasharray="6 4"')
    return plot.svg()


def _is_scored(row: Row) -> bool:
    return row.state == "done" and row.score is not None


def _at(row: Row) -> Point:
    return float(row.frames or 0), float(row.score or 0.0)


def _options(standings: Standings, colors: Mapping[int, str]) -> list[str]:
    """A picture for each searched option: its values over depth."""
    rows = [(row, row.values) for row in shown_pods(standings)]
    words = dict.fromkeys(word for _, values in rows for word in values)
    path = standings.ancestry(standings.leader())[::-1]
    drawn = []
    for word in list(words)[:_OPTIONS]:
        own = [(row, values[word]) for row, values in rows if word in values]
        drawn.append(_drift(standings, word, own, colors, path))
    return drawn


def _drift(
    standings: Standings,
    word: str,
    own: Sequence[tuple[Row, Any]],
    colors: Mapping[int, str],
    path: Sequence[Row],
) -> str:
    heights, y = _heights(own, is_log=standings.is_log(word))
    deepest = max(row.depth for row, _ in own)
    left = left_margin(text for _, text in y.ticks(6))
    x = Axis(low=0.5, high=deepest + 0.5, start=left, end=left + 220.0, least=1.0)
    plot = Plot(x, y, "depth", word)
    points = {row.id: (float(row.depth), heights[place]) for place, (row, _) in enumerate(own)}
    lines: dict[str, list[str]] = {}
    spots: dict[str, list[Point]] = {}
    for row, _ in own:
        near = (points[one] for one in row.ancestors if one in points)
        pieces = (plot.joined([point, points[row.id]]) for point in near)
        lines.setdefault(colors[row.lineage], []).extend(pieces)
        spots.setdefault(colors[row.lineage], []).append(points[row.id])
    for color, found in sorted(spots.items(), key=lambda item: item[0] != _OTHERS):
        plot.path(lines[color], color, 0.7, 'opacity=".5"')
        plot.path([plot.dots(found)], color, 4.0)
    plot.line([points[row.id] for row in path if row.id in points], _INK, 5.0, 'opacity=".28"')
    if not y.names:
        depths: dict[int, list[float]] = {}
        for place, (row, _) in enumerate(own):
            depths.setdefault(row.depth, []).append(heights[place])
        middle = [(float(depth), median(values)) for depth, values in sorted(depths.items())]
        plot.line(middle, _INK, 1.4, 'stroke-dasharray="6 4"')
    return f"<figure>{plot.svg()}</figure>"


def _heights(own: Sequence[tuple[Row, Any]], *, is_log: bool) -> tuple[list[float], Axis]:
    """Values as heights, and their axis; what is no number has a height for each value."""
    values = [value for _, value in own]
    if all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in values):
        numbers = [float(one) for one in values]
        is_log = is_log and min(numbers) > 0
        return numbers, Axis.over(numbers, 190.0, 24.0, is_log=is_log)
    texts = [short(one) for one in values]
    names = tuple(sorted(set(texts)))
    shown = tuple(name if len(name) <= 16 else f"{name[:14]}.." for name in names)
    last = len(names) - 0.5
    y = Axis(low=-0.5, high=last, start=190.0, end=24.0, names=shown)
    return [float(names.index(text)) for text in texts], y


_SCORES = (
    "Score of each pod by the frames that its policy has seen; a line for each member, in the "
    "color of the lineage that it belongs to. Dashed: the best so far. Wide and gray: the path to "
    "the winner, or to whoever leads. Scores that fell far below are cut off."
)
_LINEAGE = (
    "A row for each member, a dot for each pod. A line shows which pod another one went on from; "
    "one that leaves its row goes to a member that was replaced. Squares begin anew, hollow dots "
    "are not done, crosses failed. The wide gray line leads to the winner, or to whoever leads."
)
_DRIFT = (
    "Values of the searched options by depth; lines go from parents to children. Dashed: the "
    "median of a depth. Wide and gray: the path to the winner, or to whoever leads."
)
