"""The library of kernels is built once, whole, and done without where nothing can build it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch._inductor import config

from torchrl_elegant.algorithms.adam import LeanAdam
from torchrl_elegant.objectives.compiled import kernels as module
from torchrl_elegant.objectives.compiled.cache import cache_folder
from torchrl_elegant.objectives.compiled.kernels import kernels, kernels_digest
from torchrl_elegant.objectives.compiled.products import own_product


def forget_what_is_loaded():
    kernels.cache_clear()
    kernels_digest.cache_clear()


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    forget_what_is_loaded()
    yield tmp_path
    forget_what_is_loaded()


def kept():
    return cache_folder() / kernels_digest() / "kernels.so"


def test_a_damaged_library_is_built_again():
    kept().parent.mkdir(parents=True)
    kept().write_bytes(b"not a library")
    assert kernels() is not None
    assert [each.name for each in kept().parent.iterdir()] == ["kernels.so"]


def test_it_is_built_once(monkeypatch):
    assert kernels() is not None
    kernels.cache_clear()
    monkeypatch.setattr(module, "_build", lambda folder: pytest.fail("built again"))
    assert kernels() is not None


def test_without_a_compiler_there_are_none(monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert kernels() is None
    assert "could not be compiled" in caplog.text


def test_processes_that_build_at_the_same_time_do_not_disturb_each_other():
    program = (
        "import torch; from torchrl_elegant.objectives.compiled.products import own_product\n"
        "x = torch.ones(3, 3); assert own_product(x, x).tolist() == (3 * x).tolist()"
    )
    running = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
    assert [each.wait() for each in running] == [0, 0]
    assert [each.name for each in kept().parent.iterdir()] == ["kernels.so"]


@pytest.mark.parametrize("bits", [1, 256])
def test_vectors_of_other_widths_compute_the_same(bits):
    """256 bits are those of AVX2; 1 is the code for any processor."""
    expected = kernels_digest()
    with config.patch({"cpp.simdlen": bits}):
        forget_what_is_loaded()
        assert kernels() is not None
        assert kernels_digest() != expected
        for rows, depth, width in [(1, 1, 1), (7, 5, 9), (64, 23, 64), (13, 17, 33), (6, 40, 16)]:
            left, right, bias = (
                torch.randn(rows, depth),
                torch.randn(width, depth),
                torch.randn(width),
            )
            found = own_product(left, right.t(), bias)
            torch.testing.assert_close(found, left @ right.t() + bias, rtol=1e-4, atol=1e-4)
        params = [[nn.Parameter(torch.linspace(-1, 1, 37))] for _ in range(2)]
        lean, reference = LeanAdam(params[0], lr=0.1), torch.optim.Adam(params[1], lr=0.1)
        lean.compile()
        for step in range(4):
            for param in params[0] + params[1]:
                param.grad = torch.linspace(-2, 3, 37) * (1 + step)
            lean.step_alone()
            reference.step()
        assert lean._kernel is not None
        torch.testing.assert_close(params[0][0], params[1][0], rtol=1e-5, atol=1e-6)
