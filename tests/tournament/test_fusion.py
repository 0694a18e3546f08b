"""Averages of two members: the numbers, who is averaged, and the gate that an average must pass."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from tournament_toys import Toy, check_whole, play, rows

from torchrl_elegant import PPOConfig, RunConfig, SACConfig
from torchrl_elegant.data import Moments
from torchrl_elegant.runs.trial import Trial
from torchrl_elegant.tournament import tournament
from torchrl_elegant.tournament.fusion import FusionError, fused, merged
from torchrl_elegant.tournament.leaderboard import Pod
from torchrl_elegant.tournament.pod import Order, carry_out
from torchrl_elegant.tournament.schemes import pairs_of
from torchrl_elegant.tournament.store import Store
from torchrl_elegant.tournament.training import Training

POINT = "faults.fault_envs:point"
PPO = PPOConfig(num_cells=(8,), batch_size=20, epochs=1)
SAC = SACConfig(num_cells=(4,), batch_size=4, warmup=8)


def state_of(config=SAC, *, frames=40, seed=0, **options):
    with Trial(config, POINT, total_frames=200, frames_per_batch=20, seed=seed, **options) as trial:
        trial.train(frames=frames)
        return trial.state_dict()


def test_networks_targets_and_moments_are_those_that_a_hand_would_compute():
    one, other = state_of(seed=1), state_of(seed=2, frames=60)
    found = fused(one, other)["learner"]
    targets = 0
    for name, value in found["loss"].items():
        a, b = one["learner"]["loss"][name], other["learner"]["loss"][name]
        torch.testing.assert_close(value, 0.5 * a + 0.5 * b)
        targets += "target" in name and value.ndim > 1 and not torch.equal(a, b)
    assert targets >= 2
    first, second = one["learner"]["optimizer"], other["learner"]["optimizer"]
    assert found["optimizer"]["state"].keys() == first["state"].keys() != set()
    for index, entry in found["optimizer"]["state"].items():
        a, b = first["state"][index], second["state"][index]
        for name in ("exp_avg", "exp_avg_sq"):
            torch.testing.assert_close(entry[name], 0.5 * a[name] + 0.5 * b[name])
            assert not torch.equal(a[name], b[name])
        # Fewer steps than were made would make the next one too large.
        assert entry["step"] == max(a["step"], b["step"]) == b["step"] > a["step"]
    assert found["optimizer"]["param_groups"] == first["param_groups"]


def test_all_that_is_no_average_is_that_of_the_better_one_and_nothing_is_changed():
    one, other = state_of(PPO, seed=1), state_of(PPO, seed=2, frames=60)
    before = one["learner"]["loss"]["critic_network_params.net.layers.0.bias"].clone()
    found = fused(one, other)
    assert found["ledger"] == one["ledger"] != other["ledger"]
    assert found["random"] is one["random"]
    assert found["learner"]["schedule"] == one["learner"]["schedule"]
    after = one["learner"]["loss"]["critic_network_params.net.layers.0.bias"]
    assert torch.equal(before, after)
    with Trial(PPO, POINT, total_frames=200, frames_per_batch=20) as trial:
        trial.load_state_dict(found)
        assert trial.ledger.frames == 40
        trial.train(frames=20)


def test_statistics_are_those_of_the_joined_data():
    draw = torch.Generator().manual_seed(0)
    few = torch.randn(7, 3, generator=draw) * 2 + 100
    more = torch.randn(50, 3, generator=draw) - 1
    parts = [Moments((3,)) for _ in range(2)]
    for part, values in zip(parts, (few, more), strict=True):
        part.add(values)
    found = merged(*(part.state_dict() for part in parts))
    joined = torch.cat([few, more]).double()
    torch.testing.assert_close(found["mean"], joined.mean(0))
    torch.testing.assert_close(found["squares"] / found["count"], joined.var(0, correction=0))
    # What both have seen before they parted does not count twice.
    assert found["count"] == len(joined) / 2


def test_a_normalizer_inside_a_state_is_merged():
    config = replace(PPO, normalize_observation=True, normalize_value=True)
    one, other = state_of(config, seed=1), state_of(config, seed=2, frames=60)
    scalings = [state["learner"]["add_ons"]["scaling"] for state in (one, other)]
    found = fused(one, other)["learner"]["add_ons"]["scaling"]
    (key,) = found["observations"]
    for path in (lambda state: state["observations"][key], lambda state: state["returns"]):
        a, b = map(path, scalings)
        weight = a["count"] / (a["count"] + b["count"])
        assert 0.3 < weight < 0.5
        mean = weight * a["mean"] + (1 - weight) * b["mean"]
        torch.testing.assert_close(path(found)["mean"], mean)
        assert path(found)["count"] == (a["count"] + b["count"]) / 2
    with Trial(config, POINT, total_frames=200, frames_per_batch=20) as trial:
        trial.load_state_dict(fused(one, other))
        state = trial.state_dict()["learner"]["add_ons"]["scaling"]["observations"][key]
        assert torch.equal(state["mean"], found["observations"][key]["mean"])


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (replace(SAC, num_cells=(5,)), r"got `loss\.\S+` in shapes \(\S+, \S+\) and"),
        (replace(SAC, num_cells=(4, 4)), r"got `loss\.\S+` in only one of them|in shapes"),
        (PPO, r"got `loss\.\S+` in only one of them"),
    ],
)
def test_other_networks_are_refused(config, told):
    with pytest.raises(FusionError, match=told) as error:
        fused(state_of(), state_of(config))
    assert "must be of the same networks" in str(error.value)


# Who is averaged.


def pod(number, score, **more):
    usual = dict.fromkeys(Pod.__dataclass_fields__)
    about = {"depth": 2, "entry": 0, "architecture": "x", "lineage": 1, "options": {"lr": 1e-3}}
    return Pod(**{**usual, "id": number, "score": score, **about, **more})


def numbers(pods):
    return [(better.id, other.id) for better, other in pairs_of(pods)]


def test_pairs_are_of_the_best_and_nobody_is_in_two():
    assert numbers([pod(1, 3.0), pod(2, 9.0), pod(3, 5.0), pod(4, 1.0)]) == [(2, 3)]
    assert numbers([pod(1, 3.0), pod(2, 9.0), pod(3, 5.0), pod(4, 1.0), pod(5, 4.0)]) == [
        (2, 3),
        (5, 1),
    ]
    alone = {"options": {"lr": 1e-4}}
    # The better one must be in the better half.
    assert numbers([pod(1, 3.0), pod(2, 9.0, **alone), pod(3, 5.0, lineage=2), pod(4, 1.0)]) == []
    assert numbers([pod(1, 6.0), pod(2, 9.0, **alone), pod(3, 5.0, lineage=2), pod(4, 1.0)]) == [
        (1, 4)
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"depth": 3},
        {"entry": 1},
        {"architecture": "y"},
        {"lineage": 2},
        {"options": {"lr": 2e-3}},
    ],
    ids=lambda other: next(iter(other)),
)
def test_those_that_differ_are_never_averaged(other):
    assert numbers([pod(1, 3.0), pod(2, 9.0)]) == [(2, 1)]
    assert numbers([pod(1, 3.0), pod(2, 9.0, **other)]) == []


# The gate.


def training(folder, config=PPO):
    (folder / "results").mkdir(exist_ok=True)
    run = RunConfig(env=POINT, total_frames=400, frames_per_batch=20, eval_episodes=2)
    return Training(Store(folder), (config,), run, POINT)


def order(number, operation, **more):
    usual = {
        "attempt": 1,
        "entry": 0,
        "options": {},
        "parent": None,
        "start": None,
        "amount": 0.0,
        "budget": 40,
        "unit": "frames",
        "rungs": (),
        "seed": 5,
        "episodes": 6,
    }
    return Order(pod=number, operation=operation, **{**usual, **more})


class Line:
    def __init__(self, reason=None):
        self.reason = reason

    def beat(self):
        return self.reason


def constant(work, value):
    """Digest of a checkpoint whose policy has the mean ``value`` before it is bounded."""
    first = work(order(1, "initial"), Line())
    page = torch.load(io.BytesIO(work.store.get(first.checkpoint)), weights_only=True)
    loss = page["state"]["learner"]["loss"]
    last = [name for name in loss if name.startswith("actor") and name.endswith("1.weight")]
    for name in last:
        loss[name].zero_()
        loss[name.replace("weight", "bias")].fill_(value)
    assert last
    data = io.BytesIO()
    torch.save(page, data)
    return work.store.put(data.getvalue())


def test_a_better_average_is_published(tmp_path):
    work = training(tmp_path)
    # The place to sit on is as often to the left as to the right.
    ends = constant(work, 0.9), constant(work, -0.9)
    result = work(order(7, "fuse", parent=ends[0], other=ends[1], budget=0, episodes=30), Line())
    assert (result.kind, result.episodes, result.frames, result.amount) == ("done", 30, 40, 0)
    page = work._state(result.checkpoint)
    (bias,) = [
        value
        for name, value in page["learner"]["loss"].items()
        if name.startswith("actor") and name.endswith("1.bias")
    ]
    assert bias.abs().max() < 1e-6
    scored = work(order(8, "final", parent=result.checkpoint, episodes=30), Line())
    assert scored.score == result.score


def test_a_worse_average_is_refused_and_leaves_nothing(tmp_path):
    work = training(tmp_path)
    good, bad = constant(work, 0.0), constant(work, 3.0)
    for parent, other in ((good, bad), (bad, good)):
        told = order(7, "fuse", parent=parent, other=other, budget=0, episodes=30)
        result = work(told, Line())
        assert (result.kind, result.checkpoint) == ("ended", None)
        best = work(order(8, "final", parent=good, episodes=30), Line())
        assert result.error == (
            f"the average has a return of {result.score:.6g}, its best part {best.score:.6g}"
        )


def test_all_three_play_the_same_episodes(tmp_path):
    work = training(tmp_path)
    part = constant(work, 0.5)
    # With other episodes one of these would be worse by luck.
    for seed in range(5):
        told = order(7, "fuse", parent=part, other=part, budget=0, seed=seed)
        assert work(told, Line()).kind == "done"


def test_an_average_that_is_ended_half_way_is_made_later(tmp_path):
    work = training(tmp_path)
    told = order(7, "fuse", parent=constant(work, 0.9), other=constant(work, -0.9), budget=0)
    result = work(told, Line("preempted"))
    assert (result.kind, result.amount, result.checkpoint) == ("partial", 0, None)


def test_checkpoints_of_other_networks_fail_and_nobody_goes_on_from_them(tmp_path):
    work = training(tmp_path)
    other = training(tmp_path, replace(PPO, num_cells=(9,)))
    digests = [one(order(1, "initial"), Line()).checkpoint for one in (work, other)]
    told = order(7, "fuse", parent=digests[0], other=digests[1], budget=0)
    result = carry_out(work, told, Line(), tmp_path / "results")
    assert result.kind == "failed"
    assert "FusionError: two states must be of the same networks" in result.error


# In a tournament.

FUSION = {"scheme": "generational", "fusion": True, "population": 8, "budget": 4_800}


def test_an_average_has_two_parents_and_its_pair_goes_on_from_it_or_from_the_better_part(tmp_path):
    play(tmp_path, **FUSION)
    check_whole(tmp_path)
    pods = {
        row[0]: row[1:]
        for row in rows(
            tmp_path,
            "SELECT id, operation, state, member, depth, parents, lineage, options, score FROM pod",
        )
    }
    children = {
        (member, depth): (operation, json.loads(parents), options)
        for operation, _, member, depth, parents, _, options, _ in pods.values()
        if operation in ("continue", "exploit", "twin")
    }
    fusions = {number: row for number, row in pods.items() if row[0] == "fuse"}
    assert {row[1] for row in fusions.values()} == {"done", "ended"}
    for number, (_, state, owner, depth, parents, lineage, options, _) in fusions.items():
        better, other = json.loads(parents)
        assert pods[better][2] == owner != pods[other][2]
        for part in (better, other):
            assert pods[part][3] == depth
            assert (pods[part][5], pods[part][6]) == (lineage, options)
        if depth < 6:
            source = number if state == "done" else better
            assert children[owner, depth + 1] == ("continue", [source], options)
            operation, begun, explored = children[pods[other][2], depth + 1]
            assert (operation, begun) == ("exploit", [source])
            assert explored != options
    # A replaced member first trains as the twin of the one it was replaced by.
    for operation, _, _, _, parents, _, options, _ in pods.values():
        if operation == "twin":
            assert options == pods[json.loads(parents)[0]][6]
    # A refusal says why; evaluations use up no budget.
    assert rows(tmp_path, "SELECT DISTINCT error FROM pod WHERE state = 'ended'") == [
        ("the average is worse",)
    ]
    assert rows(tmp_path, "SELECT SUM(amount) FROM pod") == [(4_800.0,)]


def test_no_part_and_no_average_goes_as_long_as_anybody_needs_it(tmp_path):
    class Big(Toy):
        def publish(self, order, page):
            return {**super().publish(order, page), "size": 900_000}

    play(tmp_path / "run", work=Big(Store(tmp_path / "run" / "checkpoints")), store_mb=1, **FUSION)
    check_whole(tmp_path / "run")
    ends = rows(tmp_path / "run", "SELECT DISTINCT state FROM pod ORDER BY state")
    assert ends == [("done",), ("ended",)]
    gone = rows(tmp_path / "run", "SELECT COUNT(*) FROM checkpoint WHERE state = 'gone'")
    assert gone[0][0] > 30
    query = "SELECT id FROM pod WHERE operation = 'fuse' AND state = 'done' AND depth < 6"
    for (number,) in rows(tmp_path / "run", query):
        children = f"SELECT DISTINCT operation FROM pod WHERE parents = '[{number}]'"
        found = {operation for (operation,) in rows(tmp_path / "run", children)}
        assert {"continue", "exploit"} <= found


def test_an_average_of_damaged_parts_is_not_made_and_its_members_go_on(tmp_path):
    class Flip(Toy):
        flipped: ClassVar[list] = []

        def fuse(self, order):
            path = self.store.path / order.parent
            if not self.flipped:
                path.write_bytes(path.read_bytes()[:-1] + b"?")
                self.flipped.append(order.pod)
            return super().fuse(order)

    play(tmp_path, work=Flip(Store(tmp_path / "checkpoints")), **FUSION)
    (number,) = Flip.flipped
    ((state, parents),) = rows(tmp_path, f"SELECT state, parents FROM pod WHERE id = {number}")
    assert state == "failed"
    better, _ = json.loads(parents)
    damaged = rows(tmp_path, "SELECT pod FROM checkpoint WHERE state = 'damaged'")
    assert damaged == [(better,)]
    assert (
        rows(tmp_path, f"SELECT id FROM pod WHERE parents = '[{better}]' AND id > {number}") == []
    )
    counts = rows(
        tmp_path,
        "SELECT member, COUNT(*) FROM pod WHERE operation IN "
        "('initial', 'continue', 'exploit', 'twin') GROUP BY member",
    )
    assert counts == [(member, 6) for member in range(8)]


def test_a_real_tournament_averages_its_members(tmp_path):
    result = tournament(
        PPO,
        POINT,
        folder=str(tmp_path / "run"),
        budget=800,
        quantum=40,
        population=4,
        scheme="generational",
        fusion=True,
        executor="inline",
        frames_per_batch=20,
        final_episodes=3,
        eval_episodes=2,
        finalists=2,
        space={"lr": "log:1e-4..1e-2"},
    )
    check_whole(tmp_path / "run")
    tried = dict(
        rows(
            tmp_path / "run",
            "SELECT state, COUNT(*) FROM pod WHERE operation = 'fuse' GROUP BY state",
        )
    )
    assert tried.keys() <= {"done", "ended"}
    assert sum(tried.values()) >= 1
    frames = rows(tmp_path / "run", "SELECT DISTINCT frames FROM pod WHERE operation = 'fuse'")
    assert all(count and count % 40 == 0 for (count,) in frames)
    assert result.policy()([0.0, 0.0]) is not None
