"""Signatures that show the arguments behind `**kwargs`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any, TypeVar

Init = TypeVar("Init", bound=Callable[..., None])


def shows_arguments(
    parent: type, *, only: Collection[str] | None = None, without: Collection[str] = ()
) -> Callable[[Init], Init]:
    """Decorates an `__init__` whose `**kwargs` go to `parent`: its signature then names them.

    They are read from the installed TorchRL, so that help and completion show what it takes.

    Args:
        parent: class whose keyword arguments are shown.
        only: the names that are passed on; None for all.
        without: names that are not passed on.

    >>> class Base:
    ...     def __init__(self, *, size: int = 1, color: str = "red") -> None: ...
    >>> class Derived(Base):
    ...     @shows_arguments(Base, without={"color"})
    ...     def __init__(self, name, **kwargs) -> None: ...
    >>> [*inspect.signature(Derived).parameters]
    ['name', 'size']
    """

    def decorate(init: Init) -> Init:
        own = inspect.signature(init)
        shown = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        for name, parameter in inspect.signature(parent).parameters.items():
            named = parameter.kind is inspect.Parameter.KEYWORD_ONLY
            passed = name not in without and (only is None or name in only)
            if named and passed and name not in own.parameters:
                shown.append(parameter)
        signed: Any = init
        signed.__signature__ = own.replace(parameters=shown)
        return init

    return decorate
