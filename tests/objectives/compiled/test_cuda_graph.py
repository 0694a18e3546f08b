"""CUDA graphs of updates, with a stand-in for the capture: there is no GPU here."""

from __future__ import annotations

import pytest
import torch
from no_sync import NoSync

from torchrl_elegant.objectives.compiled import cuda_graph
from torchrl_elegant.objectives.compiled.compiler import _as_cuda_graph
from torchrl_elegant.objectives.compiled.cuda_graph import CudaGraph
from torchrl_elegant.objectives.compiled.recording import record


@pytest.fixture
def captures(monkeypatch):
    """Like a graph, each replay reads and writes the memory of the capture, and nothing else."""
    made = []

    def capture(run):
        made.append(run)
        results = [each.clone() for each in run()]

        def replay():
            for result, new in zip(results, run(), strict=True):
                result.copy_(new)

        return results, replay

    monkeypatch.setattr(cuda_graph, "capture", capture)
    return made


def test_results_are_those_of_the_function_and_stay(captures):
    level = torch.ones(())
    outcome = [torch.zeros(2, 3), torch.zeros((), dtype=torch.int64), torch.zeros(4)]

    def function(given):
        x, count = given
        return [x * level, count + 1, x.sum().expand(4) * 2.0]

    graph = CudaGraph(function, held=[level])
    found = []
    for call in range(6):
        level.fill_(call + 1.0)
        given = [torch.full((2, 3), float(call)), torch.tensor(call)]
        found.append((graph(given), [each.clone() for each in function(given)]))
    assert len(captures) == 1
    for results, expected in found:
        assert [each.dtype for each in results] == [each.dtype for each in outcome]
        torch.testing.assert_close(results, expected)
        assert all(each.is_contiguous() for each in results[:2])


def test_a_replay_waits_for_nothing(captures):
    graph = CudaGraph(lambda given: [given[0] * 2.0], held=[])
    for _ in range(3):
        graph([torch.ones(3)])
    with NoSync():
        (result,) = graph([torch.arange(3.0)])
    assert result.tolist() == [0.0, 2.0, 4.0]
    assert len(captures) == 1


def test_tensors_that_moved_are_captured_again(captures):
    weight = torch.ones(3)
    graph = CudaGraph(lambda given: [given[0] * weight], held=[weight])
    for _ in range(4):
        graph([torch.ones(3)])
    weight.data = torch.full((3,), 5.0)
    assert graph([torch.ones(3)])[0].tolist() == [5.0, 5.0, 5.0]
    assert len(captures) == 2


def test_what_cannot_be_captured_runs_as_it_is(monkeypatch, caplog):
    def refuse(run):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(cuda_graph, "capture", refuse)
    graph = CudaGraph(lambda given: [given[0] + 1.0], held=[])
    for call in range(5):
        assert graph([torch.tensor([float(call)])])[0].item() == call + 1.0
    assert caplog.text.count("no CUDA graph") == 1
    assert "stream is capturing" in caplog.text
    assert "more" not in caplog.text


def test_held_tensors_and_random_numbers_of_a_recording_find_their_places(captures):
    weight = torch.full((2,), 3.0)
    given = [torch.ones(2), torch.full((2,), 10.0)]
    recording = record(lambda x, y: [weight * x + y + torch.randn(2)], given)
    graph = _as_cuda_graph(recording.graph, recording, count=2)
    for call in range(5):
        weight.fill_(call)
        arguments = recording.arguments(given)
        torch.testing.assert_close(graph(*arguments), [call + 10.0 + arguments[-1]])
    assert len(captures) == 1
