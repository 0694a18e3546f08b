"""Search spaces: distributions of options, how they are drawn from, and how values move in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from torchrl_elegant.algorithms import AlgorithmConfig
from torchrl_elegant.config.changes import build
from torchrl_elegant.config.options import Option, options_of
from torchrl_elegant.config.text import UsageError, fits, nearest, parse_text

#: Values of searched options by their words, such as ``{"lr": 3e-4, "hterm.horizon": 8}``.
Values = dict[str, Any]


class Distribution(Protocol):
    """Values that one option may take."""

    def sample(self, rng: np.random.Generator) -> Any:
        """Draw a value."""

    def moved(self, value: Any, factor: float, rng: np.random.Generator) -> Any:
        """A value near ``value``."""

    def ends(self) -> Sequence[Any]:
        """Values of which each must suit the option."""


@dataclass(frozen=True)
class Uniform:
    """Numbers that are drawn evenly between two bounds.

    >>> Uniform(0.9, 1.0).moved(0.99, 1.2, np.random.default_rng(0)) in (0.99 / 1.2, 0.9, 1.0)
    True
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        finite = math.isfinite(self.low) and math.isfinite(self.high)
        if not finite or not self.low < self.high:
            raise UsageError(
                f"`space` must have finite bounds, the lower one first, got {self.low}..{self.high}"
            )

    def sample(self, rng: np.random.Generator) -> Any:
        """Draw a value."""
        return float(rng.uniform(self.low, self.high))

    def moved(self, value: Any, factor: float, rng: np.random.Generator) -> Any:
        """The value times or divided by ``factor``, within the bounds."""
        value = value * factor if rng.random() < 0.5 else value / factor
        return min(max(value, self.low), self.high)

    def ends(self) -> Sequence[Any]:
        """The bounds."""
        return (self.low, self.high)

    def place(self, value: Any) -> float:
        """Part of the way from the lower bound to the upper one at which a value lies."""
        return (value - self.low) / (self.high - self.low)

    def at(self, place: float) -> Any:
        """The value at such a part of the way."""
        return min(max(self.low + place * (self.high - self.low), self.low), self.high)


@dataclass(frozen=True)
class LogUniform(Uniform):
    """Numbers whose logarithm is drawn evenly between two positive bounds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low <= 0:
            raise UsageError(f"`space` must have positive bounds for log, got {self.low}")

    def sample(self, rng: np.random.Generator) -> Any:
        """Draw a value."""
        return math.exp(rng.uniform(math.log(self.low), math.log(self.high)))

    def place(self, value: Any) -> float:
        """Part of the way from the logarithm of the lower bound to that of the upper one."""
        return math.log(value / self.low) / math.log(self.high / self.low)

    def at(self, place: float) -> Any:
        """The value at such a part of the way."""
        return min(max(self.low * (self.high / self.low) ** place, self.low), self.high)


@dataclass(frozen=True)
class Integer(Uniform):
    """Integers that are drawn evenly between two bounds, which belong to them."""

    low: int
    high: int

    def sample(self, rng: np.random.Generator) -> Any:
        """Draw a value."""
        return int(rng.integers(self.low, self.high + 1))

    def moved(self, value: Any, factor: float, rng: np.random.Generator) -> Any:
        """The value times or divided by ``factor``, by one at least, within the bounds."""
        up = rng.random() < 0.5
        near = (
            max(value + 1, round(value * factor)) if up else min(value - 1, round(value / factor))
        )
        return min(max(near, self.low), self.high)

    def at(self, place: float) -> Any:
        """The integer that is nearest to such a part of the way."""
        return round(super().at(place))


@dataclass(frozen=True)
class Choice:
    """One of several values."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if len(self.values) < 2:
            raise UsageError(f"`space` must give two or more choices, got {self.values}")

    def sample(self, rng: np.random.Generator) -> Any:
        """Draw a value."""
        return self.values[int(rng.integers(len(self.values)))]

    def moved(self, value: Any, factor: float, rng: np.random.Generator) -> Any:
        """The value itself: choices have no neighbors, and change when they are drawn anew."""
        return value

    def ends(self) -> Sequence[Any]:
        """All values."""
        return self.values


_KINDS: dict[str, type[Any]] = {"log": LogUniform, "uniform": Uniform, "int": Integer}


class Space:
    """Distributions of one algorithm's options.

    Args:
        config: the configuration that the values are put into.
        given: distributions, or their texts, by words such as ``lr`` or ``hterm.horizon``.

    >>> from torchrl_elegant.algorithms import PPOConfig
    >>> space = Space(PPOConfig(), {"lr": "log:1e-5..1e-2", "activation": "tanh,relu"})
    >>> sorted(space.sample(np.random.default_rng(0)))
    ['activation', 'lr']
    """

    def __init__(self, config: AlgorithmConfig, given: Mapping[str, Any]) -> None:
        self.config = config
        self.parts: dict[str, Distribution] = {
            word: read(word, value, find_option(config, word)) for word, value in given.items()
        }
        base = {word: part.ends()[0] for word, part in self.parts.items()}
        for word, part in self.parts.items():
            for value in part.ends():
                self._try(word, value, {**base, word: value})

    def sample(self, rng: np.random.Generator) -> Values:
        """Draw a value for each option."""
        return {word: part.sample(rng) for word, part in self.parts.items()}

    def numbers(self) -> dict[str, Uniform]:
        """Distributions of numbers that can change while a member learns."""
        return {
            word: part
            for word, part in self.parts.items()
            if isinstance(part, Uniform) and not self._forms(word)
        }

    def explored(
        self, values: Values, *, resample: float, factor: float, rng: np.random.Generator
    ) -> Values:
        """Values near others, or drawn anew with the chance ``resample``.

        Options that decide the form of the networks stay: what was learned depends on them.
        """
        found = dict(values)
        for word, part in self.parts.items():
            anew, near = part.sample(rng), part.moved(values[word], factor, rng)
            if not self._forms(word):
                found[word] = anew if rng.random() < resample else near
        return found

    def _forms(self, word: str) -> bool:
        """True for an option that decides the form of the networks."""
        return word.partition(".")[0] in self.config.settled

    def _try(self, word: str, value: Any, values: Values) -> None:
        try:
            configured(self.config, values)
        except ValueError as error:
            raise UsageError(
                f"`space.{word}` must hold values that {self.config.name} takes, got {value}: "
                f"{error}"
            ) from error


def configured(config: AlgorithmConfig, values: Mapping[str, Any]) -> AlgorithmConfig:
    """The configuration with values of searched options in it.

    >>> from torchrl_elegant.algorithms import SACConfig
    >>> configured(SACConfig(), {"gamma": 0.9, "hterm.horizon": 4}).hterm.horizon
    4
    """
    change: dict[str, Any] = {}
    for word, value in values.items():
        name, _, member = word.partition(".")
        # JSON knows no tuples.
        value = tuple(value) if isinstance(value, list) else value
        if member:
            change.setdefault(name, {})[member] = value
        else:
            change[name] = value
    made: AlgorithmConfig = build(type(config), change, config)
    return made


def spaces_of(configs: Sequence[AlgorithmConfig], space: Mapping[str, Any]) -> list[Space]:
    """The space of each algorithm; an option that only some have belongs to those.

    >>> from torchrl_elegant.algorithms import PPOConfig, SACConfig
    >>> ppo, sac = spaces_of([PPOConfig(), SACConfig()], {})
    >>> sorted(sac.parts)
    ['actor_lr', 'alpha_lr', 'critic_lr']
    """
    if not space:
        return [Space(config, _rates(config)) for config in configs]
    flat = _flat(space)
    names = {config.name for config in configs}
    found: list[dict[str, Any]] = [{} for _ in configs]
    for word, value in flat.items():
        first, _, rest = word.partition(".")
        own = first in names
        takers = [
            number
            for number, config in enumerate(configs)
            if (config.name == first if own else _has(config, word))
        ]
        for number in takers:
            found[number][rest if own else word] = value
        if not takers:
            known = sorted({name for config in configs for name in options_of(type(config))})
            raise UsageError(f"unknown option `space.{word}`: {nearest(first, known, 'space.')}")
    return [Space(config, own) for config, own in zip(configs, found, strict=True)]


def plain_space(space: Mapping[str, Any]) -> dict[str, Any]:
    """A search space as texts and lists, which a leaderboard can store.

    >>> plain_space({"ppo": {"lr": LogUniform(1e-5, 1e-2)}, "activation": Choice(("tanh", "relu"))})
    {'ppo.lr': 'log:1e-05..0.01', 'activation': ['tanh', 'relu']}
    """
    kinds = {kind: name for name, kind in _KINDS.items()}
    found = {}
    for word, part in _flat(space).items():
        if isinstance(part, Uniform):
            part = f"{kinds[type(part)]}:{part.low}..{part.high}"
        found[word] = list(part.values) if isinstance(part, Choice) else part
    return found


def _flat(space: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in space.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def _has(config: AlgorithmConfig, word: str) -> bool:
    return word.partition(".")[0] in options_of(type(config))


def _rates(config: AlgorithmConfig) -> dict[str, Distribution]:
    """Learning rates from a tenth to ten times their value.

    One that moves, or that the configuration does not use, stays as it is.
    """
    found: dict[str, Distribution] = {}
    for name in options_of(type(config)):
        value = getattr(config, name)
        if name.endswith("lr") and isinstance(value, float) and _can_change(config, name, value):
            found[name] = LogUniform(value / 10, value * 10)
    return found


def _can_change(config: AlgorithmConfig, name: str, value: float) -> bool:
    try:
        configured(config, {name: value / 10})
    except ValueError:
        return False
    return True


def find_option(config: AlgorithmConfig, word: str) -> Option:
    """The option that a word names; UsageError where there is none."""
    name, _, member = word.partition(".")
    options = options_of(type(config))
    if name in options and member:
        group = options[name].group
        options = options_of(group) if group else {}
        name = member
    if name not in options or options[name].group or options[name].is_mapping:
        raise UsageError(
            f"unknown option `space.{word}` of {config.name}: {nearest(name, options, 'space.')}"
        )
    return options[name]


def read(word: str, value: Any, item: Option) -> Distribution:
    """A distribution from its text, from a list of choices, or as it is."""
    if isinstance(value, (Uniform, Choice)):
        found: Distribution = value
    elif isinstance(value, (list, tuple)):
        found = _made(word, Choice, tuple(value))
    else:
        found = _parse(word, str(value), item)
    whole = isinstance(found, (Integer, Choice))
    if not whole and not fits(0.5, item.annotation):
        raise UsageError(
            f"`space.{word}` must be int:... or a list of choices, got {value}: the option "
            f"takes {item.requirement}"
        )
    return found


def _parse(word: str, text: str, item: Option) -> Distribution:
    kind, colon, bounds = text.partition(":")
    low, dots, high = bounds.partition("..")
    if colon and kind in _KINDS and dots:
        number = int if kind == "int" else float
        try:
            ends = parse_text(low, number), parse_text(high, number)
        except ValueError as error:
            raise UsageError(
                f"`space.{word}` must have two numbers with .. between, each {error}, got {text!r}"
            ) from error
        return _made(word, _KINDS[kind], *ends)
    if "," not in text:
        raise UsageError(
            f"`space.{word}` must be log:low..high, uniform:low..high, int:low..high or choices "
            f"with commas between, got {text!r}"
        )
    values = tuple(item.parse(part.strip(), f"space.{word}") for part in text.split(","))
    return _made(word, Choice, values)


def _made(word: str, kind: Callable[..., Distribution], *values: Any) -> Distribution:
    """A distribution of the option that ``word`` names; its refusal names the option."""
    try:
        return kind(*values)
    except UsageError as error:
        raise UsageError(str(error).replace("`space`", f"`space.{word}`", 1)) from error
