"""One function computed for several members: numbers, draws, and what cannot be shared."""

from __future__ import annotations

import pytest
import torch

from torchrl_elegant.objectives.compiled.recording import CannotRecord, record
from torchrl_elegant.objectives.compiled.stacked import StackedCall

WEIGHTS = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
COUNTS = torch.zeros(3, 1)
# The recorded member's rows.
WEIGHT, COUNTED = WEIGHTS[0], COUNTS[0]


def stack_of(row):
    return {WEIGHT.data_ptr(): WEIGHTS, COUNTED.data_ptr(): COUNTS}[row.data_ptr()]


def generators():
    return [torch.Generator().manual_seed(seed) for seed in range(3)]


def noisy(x):
    # An addition in place, a product, and two kinds of draws.
    noise = torch.randn_like(x).add_(torch.empty(2).uniform_(1.0, 2.0))
    return [(x * WEIGHT).clamp_(max=WEIGHT[1]) + noise]


def test_each_member_draws_from_its_own_generator():
    given = torch.randn(3, 2)
    call = StackedCall(record(noisy, [given[0]]), stack_of)
    (found,) = call([given], generators(), members=slice(0, 3))
    for member, generator in enumerate(generators()):
        noise = torch.randn(2, generator=generator)
        noise += torch.empty(2).uniform_(1.0, 2.0, generator=generator)
        weight = WEIGHTS[member]
        expected = (given[member] * weight).clamp(max=weight[1]) + noise
        torch.testing.assert_close(found[member], expected)


def test_some_members_are_the_same_as_all():
    given = torch.randn(3, 2)
    call = StackedCall(record(lambda x: [x @ WEIGHT], [given[0]]), stack_of)
    (every,) = call([given], members=slice(0, 3))
    (two,) = call([given[1:]], members=slice(1, 3))
    torch.testing.assert_close(every, (given * WEIGHTS).sum(1))
    torch.testing.assert_close(two, every[1:])


def test_what_a_member_changes_is_its_own_row():
    def count(x):
        COUNTED.add_(x)
        return [COUNTED * 2.0]

    call = StackedCall(record(count, [torch.zeros(1)]), stack_of)
    COUNTS.zero_()
    for times in (1.0, 2.0):
        (found,) = call([torch.tensor([[1.0], [2.0], [3.0]])], members=slice(0, 3))
        assert COUNTS.flatten().tolist() == [times, 2 * times, 3 * times]
        assert found.flatten().tolist() == [2 * times, 4 * times, 6 * times]


def test_random_numbers_that_take_no_generator_are_refused():
    recording = record(lambda x: [x * torch.randn(2)], [torch.zeros(2)])
    call = StackedCall(recording, stack_of)
    with pytest.raises(CannotRecord, match="no generator of a member"):
        call([torch.zeros(3, 2)], generators(), members=slice(0, 3))


def test_decisions_by_numbers_are_refused():
    def decide(x):
        return [x if bool((WEIGHT > 0).all()) else -x]

    with pytest.raises(CannotRecord, match="decides by numbers"):
        StackedCall(record(decide, [torch.zeros(2)]), stack_of)
