"""A guard against operations that wait for a device."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class NoSync(TorchDispatchMode):
    """Raises where a device would have to be waited for, or where values change their device."""

    waits = frozenset({"_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "equal"})

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().partition("::")[2].partition(".")[0]
        device = (kwargs or {}).get("device")
        moves = name == "_to_copy" and device is not None and device.type != args[0].device.type
        # A mask as an index: how many rows it leaves is known only on the device.
        masks = name in ("index", "index_put", "index_put_") and any(
            index is not None and not index.dtype.is_signed for index in args[1]
        )
        if name in self.waits or moves or masks:
            raise AssertionError(f"{name} waits for the device")
        return func(*args, **(kwargs or {}))
