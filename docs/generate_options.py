"""Writes ``options.md`` from the configurations: ``python docs/generate_options.py``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torchrl_elegant.algorithms import ALGORITHMS, OffPolicyConfig, OnPolicyConfig
from torchrl_elegant.config.options import Option, options_of
from torchrl_elegant.config.text import as_text
from torchrl_elegant.tournament import TournamentConfig
from torchrl_elegant.trainers import RunConfig

PAGE = Path(__file__).with_name("options.md")
_HEAD = "| option | default | |\n|---|---|---|\n"
_FAMILIES = {"Off-policy algorithms": OffPolicyConfig, "On-policy algorithms": OnPolicyConfig}


def page() -> str:
    """The text of the page."""
    parts = [
        "# Options\n\nEvery option of every algorithm, written by `docs/generate_options.py`. On "
        "the command line\nan option is a word, `name=value`; in Python it is a keyword of the "
        "configuration or of `train`.\nA list is `64,64`, nothing is `none`.\n\n## Every run\n",
        *_topics(options_of(RunConfig).values()),
    ]
    parts += ["## Every tournament\n", *_topics(options_of(TournamentConfig).values())]
    for title, family in _FAMILIES.items():
        common = options_of(family)
        parts += [f"## {title}\n", *_topics(common.values())]
        for name, config in sorted(ALGORITHMS.items()):
            if issubclass(config, family) and config.__module__.startswith("torchrl_elegant."):
                own = [one for one in options_of(config).values() if one != common.get(one.name)]
                parts += [f"### {name}\n", _table(own)]
    return "\n".join(parts)


def _topics(options: Iterable[Option]) -> list[str]:
    topics: dict[str, list[Option]] = {}
    for option in options:
        topics.setdefault(option.topic, []).append(option)
    return [f"**{topic}**\n\n{_table(listed)}" for topic, listed in topics.items()]


def _table(options: Iterable[Option]) -> str:
    return _HEAD + "".join(_row(option) for option in options)


def _row(option: Option, group: str = "") -> str:
    if option.group is None:
        default = as_text(option.default, option.annotation)
        text = f"{option.help} ({option.requirement})"
        return f"| `{group}{option.name}` | `{default}` | {text} |\n"
    first = f"| `{option.name}` | `{as_text(option.default is not None)}` | {option.help} |\n"
    members = options_of(option.group).values()
    return first + "".join(_row(member, f"{option.name}.") for member in members)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
