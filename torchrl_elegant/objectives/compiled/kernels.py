"""Kernels in C++ for the CPU: compiled once on a machine, and loaded when they are needed."""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch

from torchrl_elegant.objectives.compiled.cache import folder_of, forget, machine

logger = logging.getLogger(__name__)

_SOURCE = Path(__file__).with_name("kernels.cpp")


class _DamagedError(OSError):
    """A library that is kept cannot be loaded."""


@cache
def kernels() -> Any | None:
    """Library of the kernels in ``kernels.cpp``; None without a C++ compiler.

    >>> kernels() is kernels()
    True
    """
    try:
        try:
            return _library()
        except _DamagedError:
            forget(kernels_digest())
            return _library()
    except Exception as error:
        logger.info("the kernels for this processor could not be compiled: %s", error)
        return None


@cache
def kernels_digest() -> str:
    """Digest of the kernels, and of what decides how they are compiled."""
    from torch._inductor import config

    settings = os.environ.get("ATEN_CPU_CAPABILITY"), os.environ.get("CXX"), config.cpp.simdlen
    about = _SOURCE.read_text(), torch.__version__, machine(), settings
    return hashlib.sha256(repr(about).encode()).hexdigest()[:32]


def _library() -> ctypes.CDLL:
    with folder_of(kernels_digest()) as folder:
        path = folder / "kernels.so"
        if not path.exists():
            _build(path)
        try:
            # Global: what PyTorch compiles finds the products by their names.
            return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise _DamagedError(str(error)) from error


def _build(library: Path) -> None:
    # Slow to import, and needed by nobody who does not compile.
    from torch._inductor.cpp_builder import CppBuilder, CppTorchOptions
    from torch._inductor.cpu_vec_isa import pick_vec_isa
    from torch._inductor.runtime.cache_dir_utils import temporary_cache_dir

    with tempfile.TemporaryDirectory() as folder:
        # The choice of instructions compiles small programs, which a kill would leave half.
        with temporary_cache_dir(folder):
            options = CppTorchOptions(vec_isa=pick_vec_isa())
        builder = CppBuilder(
            name="kernels", sources=str(_SOURCE), output_dir=folder, BuildOption=options
        )
        builder.build()
        shutil.copyfile(builder.get_target_file_path(), library)
