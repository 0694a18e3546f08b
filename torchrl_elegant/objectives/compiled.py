"""A function that is compiled where it can be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torchrl._utils import logger as torchrl_logger


class Compiled:
    """``torch.compile`` that falls back to the function itself.

    Whether this machine can compile shows at the first call. If it cannot, as without a C++
    compiler, that is said once, and the function runs as it is: the results are the same.

    >>> double = Compiled(lambda x: 2 * x)
    >>> double(torch.ones(1)).item()
    2.0
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._compiled: Callable[..., Any] | None = torch.compile(function)
        self._proven = False

    def __call__(self, *args: Any) -> Any:
        if self._compiled is None:
            return self._function(*args)
        if self._proven:
            return self._compiled(*args)
        try:
            result = self._compiled(*args)
            self._proven = True
            return result
        except Exception as error:
            # First, because a mistake in the arguments is the caller's and not the compiler's.
            result = self._function(*args)
            self._compiled = None
            reason = str(error).strip().splitlines() or [type(error).__name__]
            torchrl_logger.warning("not compiled, and slower for it: %s", reason[0])
            return result
