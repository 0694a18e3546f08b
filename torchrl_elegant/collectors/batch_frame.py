"""What a batch looks like around its values, and how lists of steps become one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tensordict import TensorDictBase
from torchrl.collectors import Collector

from torchrl_elegant.collectors.leaves import Key, Leaves


class BatchFrame:
    """Keys, nested batch sizes, names and device of TorchRL's batch, filled with other values.

    Args:
        template: a batch of TorchRL.
        nexts: keys of what a step leads to, in the order in which it comes.
        dims: batch dimensions of the environment; time comes after them.

    >>> from tensordict import TensorDict
    >>> data = {"action": torch.zeros(2, 3), "next": {"reward": torch.zeros(2, 3)}}
    >>> frame = BatchFrame(TensorDict(data, [2, 3], names=[None, "time"]), nexts=["reward"], dims=1)
    >>> steps = [[torch.full((2,), float(t)), torch.ones(2)] for t in range(3)]
    >>> frame.filled(steps, into_template=False)["action"].tolist()
    [[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]]
    """

    def __init__(self, template: TensorDictBase, *, nexts: Sequence[Key], dims: int) -> None:
        keys = template.keys(True, True)
        #: What is kept of the carrier at each step.
        self.roots = Leaves(key for key in keys if head(key) not in ("next", "collector"))
        self._slots = Leaves([*self.roots.keys, *map(_next, nexts)])
        self._template, self._dims = template, dims

    def filled(
        self, steps: list[list[torch.Tensor | None]], *, into_template: bool
    ) -> TensorDictBase:
        """A batch of `steps`, each the values of `roots` and then those of `nexts`."""
        batch = self._template if into_template else self._template.copy()
        values = []
        likes = self._slots.read(self._template)
        for like, column in zip(likes, zip(*steps, strict=True), strict=True):
            out = like if into_template else like.new_empty(like.shape)
            # A step at random lacks what only the policy writes.
            if any(value is None for value in column):
                values.append(out.zero_())
            else:
                values.append(torch.stack(column, self._dims, out=out))
        self._slots.write(batch, values)
        return batch


def example_batch(
    collector: Collector, carrier: TensorDictBase, after: TensorDictBase
) -> TensorDictBase:
    """The batch that TorchRL makes of frames like this one, where it has no buffers for them."""
    frame = carrier.copy().set("next", after)
    if collector.storing_device is not None:
        frame = frame.to(collector.storing_device)
    elif collector._carrier_has_no_device:
        frame.clear_device_()
    batch = frame.unsqueeze(-1).expand(*collector.env.batch_size, collector.frames_per_batch)
    extends = collector.replay_buffer is not None and not collector._ignore_rb
    return batch if extends else batch.refine_names(..., "time")


def head(key: Key) -> str:
    """The first name of a key.

    >>> head("reward"), head(("next", "reward"))
    ('reward', 'next')
    """
    return key if isinstance(key, str) else key[0]


def _next(key: Key) -> tuple[str, ...]:
    return ("next", key) if isinstance(key, str) else ("next", *key)
