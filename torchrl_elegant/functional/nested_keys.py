"""Keys of a TensorDict as paths."""

from __future__ import annotations

from tensordict import NestedKey


def path_of(key: NestedKey) -> tuple[str, ...]:
    """Names on the way to an entry.

    >>> path_of("reward"), path_of(("agents", "reward"))
    (('reward',), ('agents', 'reward'))
    """
    return (key,) if isinstance(key, str) else key
