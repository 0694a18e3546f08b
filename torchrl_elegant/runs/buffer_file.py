"""A replay buffer as one component of a checkpoint: the filled part only, restored exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase, is_leaf_nontensor
from torchrl.checkpoint import CheckpointAdapter
from torchrl.data import ReplayBuffer
from torchrl.data.replay_buffers.samplers import PrioritizedSampler
from torchrl.data.replay_buffers.storages import TensorStorage

from torchrl_elegant.runs.files import write_torch

_CHUNK_BYTES = 1 << 24
_STATE, _ROWS = "buffer.pt", "rows.json"


class BufferAdapter(CheckpointAdapter):
    """Stores rows, cursor, write count, priorities, transforms and random state of a buffer.

    TorchRL's `ReplayBuffer.dumps` writes the whole capacity through memory maps, filled or not,
    and a memory map on a full disk ends the process with SIGBUS, which nothing can catch. This
    adapter writes the filled rows in chunks with ordinary writes, whose failure is an `OSError`.
    Prefetched samples are not stored. Whoever saves holds collection still meanwhile.

    >>> import tempfile
    >>> from torchrl.checkpoint import Checkpoint
    >>> from torchrl.data import LazyTensorStorage
    >>> new = lambda: ReplayBuffer(storage=LazyTensorStorage(100), batch_size=2)
    >>> source, target = new(), new()
    >>> _ = source.extend(TensorDict({"reward": torch.arange(3.0)}, [3]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saver = Checkpoint().register("buffer", source, adapter=BufferAdapter())
    ...     path = saver.save(f"{folder}/checkpoint")
    ...     loader = Checkpoint().register("buffer", target, adapter=BufferAdapter())
    ...     _ = loader.load(path)
    >>> target[:]["reward"]
    tensor([0., 1., 2.])
    """

    adapter_id = "torchrl_elegant.replay_buffer"

    @staticmethod
    def check(buffer: ReplayBuffer) -> None:
        """Raise where a buffer is of a kind that cannot be stored."""
        storage = buffer.storage
        if not isinstance(storage, TensorStorage) or storage.ndim != 1:
            raise TypeError(
                "`buffer` must have a flat tensor storage (LazyTensorStorage with ndim=1), got "
                f"{type(storage).__name__}; flatten what goes in, or leave the buffer out of the "
                "checkpoints (save_buffer=false)"
            )

    def save(
        self, component: ReplayBuffer, path: Path, *, args: tuple[Any, ...], kwargs: Mapping
    ) -> None:
        self.check(component)
        path.mkdir(parents=True, exist_ok=True)
        length = len(component.storage)
        state = {
            "length": length,
            "writer": component.writer.state_dict(),
            "sampler": _sampler_state(component.sampler, length),
            "transform": component.transform.state_dict(),
            "rng": None if component._rng is None else component._rng.get_state(),
        }
        write_torch(path / _STATE, state)
        rows = component.storage.get(slice(0, length)) if length else TensorDict()
        schema = [
            _write_leaf(path / f"{index:04d}.bin", key, rows.get(key))
            for index, key in enumerate(rows.keys(True, True, is_leaf=is_leaf_nontensor))
        ]
        (path / _ROWS).write_text(json.dumps(schema), encoding="utf-8")

    def load(
        self,
        component: ReplayBuffer,
        path: Path,
        *,
        map_location: Any,
        tensor_load_kwargs: Mapping[str, Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        self.check(component)
        state = torch.load(path / _STATE, map_location="cpu", weights_only=True)
        length, capacity = state["length"], component.storage.max_size
        if length > capacity:
            raise ValueError(
                f"the stored buffer holds {length} rows, this one has room for {capacity}; "
                "set the size it was trained with"
            )
        component.empty()
        if length:
            schema = json.loads((path / _ROWS).read_text(encoding="utf-8"))
            _read_rows(path, schema, length, component.storage)
        component.writer.load_state_dict(state["writer"])
        _load_sampler(component.sampler, state["sampler"], length)
        component.transform.load_state_dict(state["transform"])
        if state["rng"] is not None:
            generator = torch.Generator()
            generator.set_state(state["rng"])
            component.set_rng(generator)


def _write_leaf(path: Path, key: Any, tensor: Any) -> dict[str, Any]:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"buffer entry {key!r} must be a tensor, got {type(tensor).__name__}")
    rows = max(1, _CHUNK_BYTES // max(1, tensor[:1].nbytes))
    with path.open("wb") as file:
        for part in tensor.split(rows):
            file.write(part.contiguous().cpu().flatten().view(torch.uint8).numpy().data)
    return {
        "key": [key] if isinstance(key, str) else list(key),
        "file": path.name,
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape[1:]),
    }


def _read_rows(
    path: Path, schema: list[dict[str, Any]], length: int, storage: TensorStorage
) -> None:
    maps = []
    for leaf in schema:
        dtype, shape = getattr(torch, leaf["dtype"]), leaf["shape"]
        size = torch.Size(shape).numel() * dtype.itemsize
        file = path / leaf["file"]
        # An array without elements cannot be mapped.
        data: np.ndarray = np.memmap(file, np.uint8, "r") if size else np.empty(0, np.uint8)
        maps.append((tuple(leaf["key"]), dtype, shape, data.reshape(length, size)))
    total = sum(max(1, data.shape[1]) for *_, data in maps)
    step = max(1, _CHUNK_BYTES // max(1, total))
    for start in range(0, length, step):
        stop = min(start + step, length)
        rows: TensorDictBase = TensorDict(batch_size=[stop - start])
        for key, dtype, shape, data in maps:
            raw = torch.from_numpy(np.array(data[start:stop])).flatten()
            rows.set(key, raw.view(dtype).reshape(stop - start, *shape))
        storage.set(torch.arange(start, stop), rows)


def _sampler_state(sampler: Any, length: int) -> dict[str, Any]:
    if not isinstance(sampler, PrioritizedSampler):
        return sampler.state_dict()
    # Its state_dict holds the segment trees themselves, which only pickle can store.
    state = {k: v for k, v in sampler.state_dict().items() if not k.endswith("_tree")}
    if length:
        state["_priorities"] = torch.as_tensor(sampler._sum_tree[torch.arange(length)]).clone()
    return state


def _load_sampler(sampler: Any, state: dict[str, Any], length: int) -> None:
    if not isinstance(sampler, PrioritizedSampler):
        sampler.load_state_dict(state)
        return
    if "_alpha" not in state:
        # The rows of a run that drew them evenly have equal chances at first.
        if length:
            sampler.update_priority(torch.arange(length), sampler.default_priority)
        return
    alpha = sampler.alpha
    priorities = state.pop("_priorities", None)
    trees = {"_sum_tree": sampler._sum_tree, "_min_tree": sampler._min_tree}
    sampler.load_state_dict({**state, **trees})
    if priorities is not None:
        index = torch.arange(length)
        sampler._sum_tree[index] = priorities
        sampler._min_tree[index] = priorities
    sampler.alpha = alpha  # which is configured, and not what a run has come to
