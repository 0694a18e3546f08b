"""Status of a tournament as a page of text, as a page of HTML, and as a picture."""

from __future__ import annotations

from pathlib import Path

from torchrl_elegant.runs.folder import refused_by_the_system
from torchrl_elegant.tournament.leaderboard import Leaderboard, Pod
from torchrl_elegant.tournament.run import open_leaderboard
from torchrl_elegant.tournament.views import lineage_picture, write_report
from torchrl_elegant.tournament.views.standings import short
from torchrl_elegant.tournament.views.terminal import columns

_HEAD = ("rank", "member", "pod", "depth", "algorithm", "return", "episodes", "frames", "from")
_STATES = ("done", "running", "queued", "ended", "failed")


def status(folder: str | Path) -> str:
    """The leaderboard in a folder, also while its tournament runs.

    The best pod of each member is a row, and its line says which pod it went on from.
    """
    with open_leaderboard(folder, option="status") as board:
        rows = [_row(rank, pod) for rank, pod in enumerate(board.best_of_members(), 1)]
        return "\n".join([*columns([(*_HEAD, "options"), *rows]), "", *_summary(board)])


def report(folder: str | Path) -> Path:
    """Write the page ``report.html`` of a tournament anew; returns its path."""
    path = Path(folder)
    way_out = "make it writable, or copy the folder"
    with open_leaderboard(path, option="report"), refused_by_the_system(path, "report", way_out):
        return write_report(path)


def lineage(folder: str | Path) -> str:
    """Picture of who went on from whom in a tournament: the text of an SVG file."""
    with open_leaderboard(folder, option="folder"):
        return lineage_picture(Path(folder))


def _row(rank: int, pod: Pod) -> tuple[str, ...]:
    error = "" if pod.score_error is None else f" ± {pod.score_error:.2f}"
    origin = f"{pod.operation} {' '.join(map(str, pod.parents))}".rstrip()
    options = " ".join(f"{name}={short(value)}" for name, value in pod.options.items())
    score = f"{pod.score:.2f}{error}"
    return (
        *map(str, (rank, pod.member, pod.id, pod.depth, pod.algorithm, score, pod.episodes)),
        *(f"{pod.frames:,}", origin, options),
    )


def _summary(board: Leaderboard) -> list[str]:
    config, counts = board.meta("config"), board.states()
    pods = ", ".join(f"{counts[state]} {state}" for state in _STATES if counts.get(state))
    spent = f"{board.spent():,.0f} of {config['budget']:,} {config['unit']} used or under way"
    lines = [f"pods: {pods or 'none yet'}; {spent}"]
    for final in board.pods("operation = 'final' AND state = 'done'"):
        score = f"return {final.score:.2f} over {final.episodes} new episodes"
        lines.append(f"final evaluation of pod {final.parents[0]}: {score}")
    failed = board.pods("state = 'failed'")
    if failed:
        lines.append(f"last failure, pod {failed[-1].id}: {failed[-1].error}")
    return lines
