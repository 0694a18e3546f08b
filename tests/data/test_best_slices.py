"""The store of the best slices: what it keeps, for how long, and what it gives back."""

from __future__ import annotations

import copy
import io
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sameness import assert_same
from tensordict import TensorDict

from torchrl_elegant.data import BestSlices

KEYS = ["number", ("agent", "seen")]


def steps(rewards, done=(), terminated=(), first=0, dtype=torch.float32) -> TensorDict:
    """Numbered steps of one environment, which end at the times of ``done`` and ``terminated``."""
    time = len(rewards)
    number = torch.arange(first, first + time)
    ended, over = torch.zeros(2, time, 1, dtype=torch.bool)
    ended[list(terminated)] = True
    over[[*terminated, *done]] = True
    reward = torch.tensor(rewards, dtype=dtype).reshape(time, 1)
    after = {"reward": reward, "done": over, "terminated": ended}
    seen = torch.stack([number, -number], -1).to(torch.int16)
    return TensorDict({"number": number, "agent": {"seen": seen}, "next": after}, [time])


def make(**options) -> BestSlices:
    options = {"horizon": 2, "capacity": 100, "max_age": 1000, "keys": KEYS, **options}
    return BestSlices(**options)


def kept(store: BestSlices) -> list[int]:
    """Number of the first step of each slice that is kept, the best in front."""
    return [] if store._kept is None else store._kept["number"][:, 0].tolist()


def scores(store: BestSlices) -> list[float]:
    return store._kept["_score"][:, 0].tolist()


# ---- scores -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rewards", "options", "score"),
    [
        ((1.0, 2.0, 4.0), {}, (1 + 0.5 * 2 + 0.25 * 4) / 1.75),
        ((1.0, 2.0, 4.0), {"terminated": (2,)}, (1 + 0.5 * 2 + 0.25 * 4) / 1.75),
        # After a termination rewards of 0 count, after a truncation nothing does.
        ((1.0, 2.0), {"terminated": (1,)}, (1 + 0.5 * 2) / 1.75),
        ((1.0, 2.0), {"done": (1,)}, (1 + 0.5 * 2) / 1.5),
        ((3.0,), {"terminated": (0,)}, 3 / 1.75),
        ((3.0,), {"done": (0,)}, 3.0),
    ],
)
def test_scores_by_hand(rewards, options, score):
    store = make(horizon=3, gamma=0.5)
    store.extend(steps(rewards, **options))
    assert scores(store) == pytest.approx([score])


def test_whole_slices_are_ranked_by_their_return():
    store = make(gamma=0.5)
    store.extend(steps([1.0, 0.0, 0.0, 4.0, 0.0, 1.0, 3.0, -9.0]))
    assert kept(store) == [2, 0, 4, 6]
    assert [1.5 * score for score in scores(store)] == pytest.approx([2.0, 1.0, 0.5, -1.5])


def test_to_live_on_beats_to_die_where_rewards_are_good_and_not_where_they_are_bad():
    # Whole, and terminated after one step.
    for reward, order in ((1.0, [0, 2]), (-1.0, [2, 0])):
        store = make(horizon=2, gamma=1.0)
        store.extend(steps([reward] * 3, terminated=(2,)))
        assert kept(store) == order


@pytest.mark.parametrize("reward", [9.0, 0.0, -9.0])
def test_what_a_time_limit_cut_short_comes_last_whatever_it_brought(reward):
    store = make(horizon=2, gamma=1.0)
    # Whole, terminated after one step, truncated after one step, truncated at its last.
    store.extend(steps([1.0, 1.0, 1.0, reward, -5.0, -5.0], terminated=(2,), done=(3, 5)))
    assert kept(store) == [0, 2, 4, 3]
    assert scores(store) == pytest.approx([1.0, 0.5, -5.0, reward])


def test_of_those_that_were_cut_short_the_best_comes_first_and_of_equals_the_newest():
    store = make(horizon=3, gamma=1.0)
    store.extend(steps([1.0, 4.0, 2.0, 2.0, 1.0], done=(0, 1, 3, 4)))
    assert kept(store) == [1, 2, 4, 0]
    store.extend(steps([-1.0] * 3, first=5))
    assert kept(store) == [5, 1, 2, 4, 0]


def test_what_was_cut_short_goes_before_anything_whole():
    store = make(horizon=2, capacity=2)
    store.extend(steps([9.0, 8.0], done=(0, 1)))
    assert kept(store) == [0, 1]
    store.extend(steps([-1.0] * 2, first=2))
    assert kept(store) == [2, 0]
    store.extend(steps([-3.0] * 2, first=4))
    assert kept(store) == [2, 4]


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_discounts_at_the_bounds(gamma):
    store = make(gamma=gamma)
    store.extend(steps([1.0, 5.0]))
    assert scores(store) == [1.0 if gamma == 0 else 3.0]


def test_a_single_step():
    store = make(horizon=1, capacity=2)
    store.extend(steps([1.0, 3.0, 2.0]))
    assert kept(store) == [1, 2]
    assert store.sample(5).shape == (5, 1)


@pytest.mark.parametrize("how", ["done", "terminated"])
def test_longer_than_any_episode(how):
    store = make(horizon=50, gamma=1.0)
    ends = tuple(range(2, 30, 3))
    new = store.extend(steps([float(t) for t in range(30)], **{how: ends}))
    assert len(new) == len(store) == 10
    assert new["mask"].sum(1).tolist() == [3] * 10
    assert kept(store) == list(range(27, -1, -3))
    assert scores(store)[0] == pytest.approx(28.0 if how == "done" else 84 / 50)


# ---- what is kept -------------------------------------------------------------------------------


def test_the_best_are_kept_up_to_the_capacity():
    store = make(capacity=2)
    store.extend(steps([1.0, 1.0, 3.0, 3.0, 2.0, 2.0]))
    assert kept(store) == [2, 4]
    new = store.extend(steps([0.0, 0.0, 2.5, 2.5], first=6))
    assert new["number"].tolist() == [[6, 7], [8, 9]]  # kept or not
    assert kept(store) == [2, 8]
    assert len(store) == 2


def test_without_a_capacity_all_are_kept_that_are_young():
    store = make(horizon=1, capacity=None, max_age=300)
    for first in range(0, 500, 100):
        store.extend(steps([float(t) for t in range(first, first + 100)], first=first))
        assert kept(store) == list(range(first + 99, max(0, first - 200) - 1, -1))
    assert len(store) == 300


def test_of_equals_the_newest():
    store = make(capacity=3)
    for first in range(0, 16, 4):
        store.extend(steps([1.0] * 4, first=first))
    assert kept(store) == [14, 12, 10]


def test_age_is_counted_in_frames():
    store = make(max_age=8)
    store.extend(steps([9.0] * 4))
    store.extend(steps([1.0] * 4, first=4))
    assert kept(store) == [2, 0, 6, 4]
    store.extend(steps([0.0] * 3, first=8))  # 7 frames since
    assert kept(store) == [2, 0, 6, 4, 8]
    store.extend(steps([0.0], first=11))  # 8
    assert kept(store) == [6, 4, 10, 8]


def test_the_newest_stay_until_others_end():
    store = make(max_age=3, horizon=4)
    store.extend(steps([1.0] * 4))
    for first in range(4, 7):
        assert len(store.extend(steps([1.0], first=first))) == 0
        assert kept(store) == [0]
    store.extend(steps([1.0], first=7))
    assert kept(store) == [4]


def test_what_is_too_old_goes_even_where_nothing_comes():
    store = make(max_age=6, horizon=4)
    store.extend(steps([1.0] * 4))
    store.extend(steps([1.0] * 4, first=4))
    assert kept(store) == [4, 0]
    store.extend(steps([1.0] * 2, first=8))
    assert kept(store) == [4]


def test_many_environments_never_leave_it_empty():
    # A slice of all of them together is longer than the age that is allowed.
    store, held = make(max_age=20, horizon=4), []
    for first in range(0, 24, 2):
        store.extend(torch.stack([steps([1.0] * 2, first=first) for _ in range(16)]))
        held.append(len(store))
    assert held == [0, *[16] * 11]


def test_an_age_of_one_batch_keeps_that_of_the_newest():
    store = make(max_age=4)
    for first in range(0, 12, 4):
        store.extend(steps([float(-first)] * 4, first=first))
        assert sorted(kept(store)) == [first, first + 2]


def test_frames_are_those_of_all_environments_and_streams():
    store = make()
    rows = torch.stack([steps([1.0] * 3), steps([1.0] * 3)])
    store.extend(rows)
    store.extend(rows, stream=1)
    assert store.frames == 12
    store.extend(rows[:, :0])
    assert store.frames == 12


def test_streams_do_not_run_into_each_other():
    store = make(horizon=3)
    assert len(store.extend(steps([1.0, 1.0]), stream=0)) == 0
    assert len(store.extend(steps([2.0, 2.0], first=100), stream=7)) == 0
    assert store.extend(steps([1.0], first=2), stream=0)["number"].tolist() == [[0, 1, 2]]
    found = store.extend(steps([2.0], first=102), stream=7)
    assert found["number"].tolist() == [[100, 101, 102]]
    assert kept(store) == [100, 0]


# A reward, and how its step ends.
STEP = st.tuples(st.integers(-3, 3), st.sampled_from(["on", "on", "on", "done", "terminated"]))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(STEP, min_size=0, max_size=9), min_size=1, max_size=8),
    st.integers(1, 3),
    st.one_of(st.none(), st.integers(1, 6)),
    st.integers(1, 25),
    st.floats(0.01, 1.0),
)
def test_against_a_list(batches, horizon, capacity, max_age, best):
    store = make(horizon=horizon, capacity=capacity, max_age=max_age, gamma=0.5, best=best)
    expected, frames, part = [], 0, []
    for batch in batches:
        ends = {
            how: tuple(at for at, (_, end) in enumerate(batch) if end == how)
            for how in ("done", "terminated")
        }
        store.extend(steps([float(reward) for reward, _ in batch], first=frames, **ends))
        now = frames + len(batch)
        for number, (reward, end) in enumerate(batch, frames):
            part.append(reward)
            if len(part) < horizon and end == "on":
                continue
            count = len(part) if end == "done" else horizon
            total = sum(0.5**k * each for k, each in enumerate(part))
            score = total / sum(0.5**k for k in range(count))
            expected.append((count < horizon, score, now, number + 1 - len(part)))
            part = []
        frames = now
        newest = max((entry[2] for entry in expected), default=0)
        expected = [e for e in expected if frames - e[2] < max_age or e[2] == newest]
        # Of equals the newest; float32 and float64 round the same sums apart.
        expected.sort(key=lambda entry: (entry[0], -round(entry[1], 4), -entry[3]))
        expected = expected[:capacity]
        assert kept(store) == [entry[3] for entry in expected]
    if expected:
        drawn = store.sample(3000)["number"][:, 0].unique().tolist()
        assert drawn == sorted(entry[3] for entry in expected[: math.ceil(best * len(expected))])


# ---- what it gives back -------------------------------------------------------------------------


def test_slices_are_as_they_were_collected():
    store = make(horizon=3, gamma=0.9)
    store.extend(steps([1.0, 2.0], terminated=(1,)))
    found = store.sample(2)
    assert found.shape == (2, 3)
    names = {"number", "mask", *KEYS[1:], *(("next", n) for n in ("reward", "done", "terminated"))}
    assert set(found.keys(True, True)) == names
    assert found["mask"].tolist() == [[True, True, False]] * 2
    assert found["next", "reward"][0].flatten().tolist() == [1.0, 2.0, 2.0]
    assert found["agent", "seen"].dtype == torch.int16
    assert found["agent", "seen"][0].tolist() == [[0, 0], [1, -1], [1, -1]]


def test_draws_are_even_and_with_replacement():
    store = make(horizon=1, capacity=4)
    store.extend(steps([1.0, 2.0, 3.0, 4.0]))
    share = store.sample(8000)["number"].flatten().bincount() / 8000
    torch.testing.assert_close(share, torch.full((4,), 0.25), atol=0.03, rtol=0.0)


@pytest.mark.parametrize(
    ("best", "most"),
    [(1.0, 8), (0.9, 8), (0.75, 6), (0.5, 4), (0.4, 4), (0.125, 1), (0.1, 1), (1e-9, 1)],
)
def test_draws_are_even_among_the_best(best, most):
    store = make(horizon=1, best=best)
    store.extend(steps([float(t) for t in range(8)]))
    share = store.sample(8000)["number"].flatten().bincount(minlength=8) / 8000
    expected = torch.tensor([0.0] * (8 - most) + [1.0 / most] * most)
    torch.testing.assert_close(share, expected, atol=0.03, rtol=0.0)
    assert (share > 0).tolist() == (expected > 0).tolist()
    assert len(store) == 8  # the others stay: they may be the best one day


def test_what_was_cut_short_is_not_among_the_best_of_many():
    store = make(horizon=2, best=0.5)
    store.extend(steps([9.0, 1.0, 1.0, 9.0, 2.0, 2.0], done=(0, 3)))
    assert kept(store) == [4, 1, 3, 0]
    assert set(store.sample(500)["number"][:, 0].tolist()) == {1, 4}


def test_the_best_are_those_of_what_is_left():
    store = make(horizon=1, best=0.5, max_age=4)
    store.extend(steps([9.0, 8.0]))
    store.extend(steps([1.0, 2.0], first=2))
    assert set(store.sample(200)["number"].flatten().tolist()) == {0, 1}
    store.extend(steps([0.0, 0.0], first=4))  # the two best are too old by now
    assert set(store.sample(200)["number"].flatten().tolist()) == {2, 3}


def test_draws_are_reproducible_and_leave_torchs_generator_alone():
    before = torch.get_rng_state()
    drawn = []
    for seed in (3, 3, 4):
        store = make(horizon=1, seed=seed)
        store.extend(steps([float(t) for t in range(50)]))
        drawn.append(torch.cat([store.sample(16), store.sample(16)])["number"].flatten().tolist())
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0][:16] != drawn[0][16:]
    assert torch.equal(torch.get_rng_state(), before)


def test_what_was_given_is_left_as_it_was_and_what_is_drawn_is_not_shared():
    store, given = make(), steps([1.0, 2.0])
    before = given.clone()
    new = store.extend(given)
    assert set(given.keys(True, True)) == set(before.keys(True, True))
    assert (given == before).all()
    new["number"].fill_(7)
    store.sample(3)["number"].fill_(9)
    given["number"].fill_(11)
    assert kept(store) == [0]
    assert not any(name.startswith("_") for name in new.keys())  # noqa: SIM118 (a TensorDict)


def test_no_graph_is_kept():
    store, given = make(), steps([1.0, 2.0])
    given["next", "reward"].requires_grad_()
    store.extend(given)
    assert not store.sample(1)["next", "reward"].requires_grad


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64])
def test_rewards_of_any_type(dtype):
    store = make(gamma=0.5)
    store.extend(steps([1, 2, 3, 4], dtype=dtype))
    assert scores(store) == pytest.approx([5 / 1.5, 2 / 1.5])
    assert store.sample(1)["next", "reward"].dtype == dtype


def test_keys_are_the_users():
    given = steps([1.0, 2.0])
    names = ["score", "born", "a.b", ("x.y", "z")]
    for name in names:
        given[name] = torch.rand(2, 3)
    store = make(keys=names)
    store.extend(given)
    other = make(keys=names)
    other.load_state_dict(store.state_dict())
    for each in (store, other):
        for name in names:
            assert torch.equal(each.sample(1).get(name)[0], given.get(name)), name


def test_reward_and_flags_under_other_names():
    given = steps([1.0, 2.0, 5.0], terminated=(0,))
    old = given.pop("next")
    given["next"] = {"r": old["reward"], "team": {"over": old["done"], "dead": old["terminated"]}}
    store = make(
        gamma=0.5, reward_key="r", done_key=("team", "over"), terminated_key=("team", "dead")
    )
    store.extend(given)
    assert kept(store) == [1, 0]
    assert scores(store) == pytest.approx([(2 + 2.5) / 1.5, 1 / 1.5])
    assert store.sample(1)["next", "team", "dead"].shape == (1, 2, 1)


def test_an_empty_store():
    store = make()
    assert len(store) == 0
    with pytest.raises(RuntimeError, match="must hold a slice to draw from, got none yet"):
        store.sample(1)
    assert len(store.extend(steps([1.0]))) == 0
    with pytest.raises(RuntimeError, match="must hold a slice"):
        store.sample(1)


# ---- copies and files ---------------------------------------------------------------------------


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("way", [lambda state: state, through_a_file])
def test_state_dict_round_trip_without_a_capacity(way):
    store, other = (make(capacity=None, best=0.5, horizon=1, seed=seed) for seed in (0, 9))
    store.extend(steps([float(t) for t in range(40)], done=(3,)))
    other.load_state_dict(way(store.state_dict()))
    assert_same(other.state_dict(), store.state_dict())
    assert len(other) == 40
    found = other.sample(500)
    assert_same(found.to_dict(), store.sample(500).to_dict())
    assert found["number"].min() == 20


@pytest.mark.parametrize("way", [lambda state: state, through_a_file])
def test_state_dict_round_trip(way):
    store = make(capacity=3)
    store.extend(steps([1.0, 1.0, 3.0, 3.0, 2.0, 2.0, 0.5]))
    store.sample(5)
    other = make(capacity=3, seed=9)
    other.extend(steps([7.0, 7.0, 7.0], first=50))
    other.load_state_dict(way(store.state_dict()))
    assert_same(other.state_dict(), store.state_dict())
    for _ in range(3):
        assert_same(other.sample(4).to_dict(), store.sample(4).to_dict())
    # They go on alike; what was under way is forgotten, as environments start anew.
    other.extend(steps([5.0, 5.0], first=8))
    assert kept(other) == [8, 2, 4]
    assert store.frames + 2 == other.frames


def test_a_state_dict_stays_as_it_was():
    store = make()
    store.extend(steps([1.0, 1.0]))
    state = store.state_dict()
    before = copy.deepcopy(state)
    store.extend(steps([1.0, 1.0], first=2))
    store.sample(4)
    assert_same(state, before)


def test_a_store_that_never_held_anything_has_a_state():
    other = make()
    other.extend(steps([1.0, 1.0]))
    other.load_state_dict(through_a_file(make().state_dict()))
    assert len(other) == other.frames == 0


def test_a_smaller_store_takes_the_best():
    store, small = make(), make(capacity=1)
    store.extend(steps([1.0, 1.0, 3.0, 3.0]))
    small.load_state_dict(store.state_dict())
    assert kept(small) == [2]


def test_a_smaller_store_takes_nothing_cut_short_before_what_is_whole():
    store, small = make(capacity=None), make(capacity=2)
    store.extend(steps([9.0, 1.0, 1.0, -3.0, -3.0], done=(0,)))
    small.load_state_dict(store.state_dict())
    assert kept(small) == [1, 3]


def test_slices_of_another_length_are_refused():
    store = make(horizon=3)
    store.extend(steps([1.0] * 3))
    with pytest.raises(ValueError, match="`horizon` must be the 3 steps of the stored slices, got"):
        make(horizon=2).load_state_dict(store.state_dict())


@pytest.mark.parametrize("way", [copy.deepcopy, lambda store: pickle.loads(pickle.dumps(store))])
def test_copies_go_on_alike(way):
    store = make()
    store.extend(steps([1.0, 1.0, 3.0, 3.0, 5.0]))
    other = way(store)
    for each in (store, other):
        each.extend(steps([5.0], first=5))  # with what was under way
    assert kept(store) == kept(other) == [4, 2, 0]
    assert_same(other.sample(9).to_dict(), store.sample(9).to_dict())


# ---- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("horizon", 0), ("capacity", 0), ("capacity", -1), ("max_age", -1)),
        *(("gamma", 1.1), ("gamma", float("nan"))),
        *(("best", 0.0), ("best", -0.1), ("best", 1.1), ("best", float("nan"))),
    ],
)
def test_refusals(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must .*, got `{value}`"):
        make(**{name: value})


def test_a_key_that_slices_have_themselves_is_refused_at_once():
    with pytest.raises(ValueError, match="`keys` must not hold `mask`"):
        make(keys=["mask"])


def test_what_steps_lack_is_named():
    with pytest.raises(KeyError, match="absent"):
        make(keys=["absent"]).extend(steps([1.0]))
