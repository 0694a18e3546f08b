"""Policies in one file."""

from __future__ import annotations

import hashlib
import io
import pickle
import random

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.envs.utils import ExplorationType, exploration_type, set_exploration_type

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.modules import SquashedGaussianActor
from torchrl_elegant.runs.exported.policy_file import write_page
from torchrl_elegant.runs.policy import BUILDERS, Policy, PolicyFileError, load_policy, save_policy


class Net(nn.Module):
    def __init__(self, sizes, keys):
        super().__init__()
        self.linear = nn.Linear(*sizes)
        self.keys = keys

    def forward(self, *inputs):
        self.seen = (exploration_type(), torch.is_grad_enabled(), inputs)
        return torch.tanh(self.linear(torch.cat(inputs, -1)))


class Toy(TensorDictModule):
    def __init__(self, sizes, keys=("observation",)):
        super().__init__(Net(sizes, keys), in_keys=list(keys), out_keys=["action"])
        self.sizes, self.keys = sizes, keys

    def spec_dict(self):
        return {"sizes": self.sizes, "keys": self.keys}


@pytest.fixture(autouse=True)
def toy_builder(monkeypatch):
    monkeypatch.setitem(BUILDERS, "Toy", Toy)


METADATA = {
    "env": "Pendulum-v1",
    "frames": 1000,
    "return_mean": np.float64(-150.5),
    "action_low": np.array([-2.0, 0.0], np.float32),
    "action_high": np.array([2.0, 10.0], np.float32),
}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "policy.pt"
    save_policy(path, Toy([3, 2]), METADATA)
    return path


def test_round_trip(tmp_path):
    actor = Toy([3, 2])
    save_policy(tmp_path / "p.pt", actor, METADATA)
    loaded = load_policy(tmp_path / "p.pt")
    assert isinstance(loaded, Toy)
    assert not loaded.training
    for key, value in actor.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value)
    metadata = Policy.load(tmp_path / "p.pt").metadata
    assert metadata["return_mean"] == -150.5
    assert metadata["env"] == "Pendulum-v1"


def test_the_houses_actor_with_nested_keys(tmp_path):
    shapes = {"speed": (1,), ("arm", "angle"): (2,)}
    actor = SquashedGaussianActor(observation=shapes, low=[-1.0], high=[1.0], num_cells=(8,))
    save_policy(tmp_path / "p.pt", actor, {"action_low": np.zeros(1), "action_high": np.ones(1)})
    observation = {"speed": np.ones(1), "arm": {"angle": np.ones(2)}}
    data = TensorDict({"speed": torch.ones(1), "arm": {"angle": torch.ones(2)}})
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        expected = (actor(data)["action"] + 1) / 2
    action = Policy.load(tmp_path / "p.pt")(observation)
    np.testing.assert_allclose(action, expected, rtol=1e-6)


def test_actions_in_environment_units(path):
    policy = Policy.load(path)
    with torch.no_grad():
        policy.actor.module.linear.weight.zero_()
        for bias, expected in ((0.0, [0, 5]), (50.0, [2, 10]), (-50.0, [-2, 0])):
            policy.actor.module.linear.bias.fill_(bias)
            action = policy(np.zeros(3))
            assert action.dtype == np.float32
            np.testing.assert_array_equal(action, np.float32(expected))


def test_batch_equals_singles(path):
    policy = Policy.load(path)
    batch = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_allclose(policy(batch), [policy(row) for row in batch], rtol=1e-5)


def test_deterministic_and_without_gradient(path):
    policy = Policy.load(path)
    policy(np.zeros(3))
    mode, grad, (seen,) = policy.actor.module.seen
    assert mode.name == "DETERMINISTIC"
    assert not grad
    assert seen.dtype == torch.float32
    assert exploration_type() is None or exploration_type().name != mode.name


def test_mapping_observations(tmp_path):
    actor = Toy([3, 2], ("speed", ("arm", "angle")))
    save_policy(tmp_path / "p.pt", actor, {})
    policy = Policy.load(tmp_path / "p.pt")
    policy({"speed": np.float32([1.0]), "arm": {"angle": np.float32([2.0, 3.0])}, "other": [0]})
    seen = policy.actor.module.seen[2]
    assert [part.tolist() for part in seen] == [[1.0], [2.0, 3.0]]


def test_images_stay_bytes():
    actor = TensorDictModule(lambda image: image, in_keys=["observation"], out_keys=["action"])
    assert Policy(actor, {})(np.zeros((2, 2), np.uint8)).dtype == np.uint8


def test_one_hot_actions_become_indices():
    actor = TensorDictModule(nn.Identity(), in_keys=["observation"], out_keys=["action"])
    policy = Policy(actor, {"discrete_actions": "one_hot"})
    assert policy(np.array([0.0, 0.0, 1.0])) == 2
    assert policy(np.eye(3)).tolist() == [0, 1, 2]


def test_wrong_metadata_is_named():
    with pytest.raises(UsageError, match="come together"):
        Policy(Toy([1, 1]), {"action_low": [0.0]})
    with pytest.raises(UsageError, match="discrete_actions"):
        Policy(Toy([1, 1]), {"discrete_actions": "onehot"})


@pytest.mark.parametrize("what", ["metadata", "spec"])
def test_only_plain_data_is_stored(tmp_path, monkeypatch, what):
    actor = Toy([1, 1])
    if what == "spec":
        monkeypatch.setattr(Toy, "spec_dict", lambda self: {"activation": nn.ReLU})
    with pytest.raises(UsageError, match="plain data"):
        save_policy(tmp_path / "p", actor, {"x": print} if what == "metadata" else {})
    assert list(tmp_path.iterdir()) == []


def test_unknown_builders(path, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="did you mean `Toy`"):
        save_policy(tmp_path / "p", Toy([1, 1]), {}, builder="Toyy")
    monkeypatch.delitem(BUILDERS, "Toy")
    with pytest.raises(PolicyFileError, match="builder 'Toy': add it to BUILDERS"):
        load_policy(path)


def test_wrong_files(path, tmp_path):
    with pytest.raises(PolicyFileError, match="no policy file"):
        load_policy(tmp_path / "none")
    torn = tmp_path / "torn"
    torn.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(PolicyFileError, match=r"torn' is damaged, or no policy file"):
        load_policy(torn)
    other = tmp_path / "other"
    torch.save({"x": 1}, other)
    with pytest.raises(PolicyFileError, match="or no policy file"):
        load_policy(other)
    page = torch.load(path, weights_only=True)  # plain torch reads it, too
    write_page(other, page | {"format": "other"})
    with pytest.raises(PolicyFileError, match="but not a policy file"):
        load_policy(other)
    write_page(other, page | {"version": 2})
    with pytest.raises(PolicyFileError, match="format version 1, got 2"):
        load_policy(other)


@pytest.mark.parametrize("seed", range(60))
def test_any_flipped_bit_is_found(path, seed):
    data = bytearray(path.read_bytes())
    place = random.Random(seed).randrange(8 * len(data))
    data[place // 8] ^= 1 << place % 8
    path.write_bytes(data)
    for read in (load_policy, Policy.load):
        with pytest.raises(PolicyFileError) as caught:
            read(path)
        assert f"{str(path)!r} is damaged" in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kept", [0, 1, 71, 72, 500, -1, -64, -72])
def test_a_cut_file_is_found(path, kept):
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(PolicyFileError, match="is damaged"):
        load_policy(path)


@pytest.mark.parametrize("entry", ["format", "version", "builder", "spec", "state", "metadata"])
@pytest.mark.parametrize("value", ["absent", None, 3.5])
def test_every_missing_entry_is_named(path, entry, value):
    page = torch.load(path, weights_only=True) | {entry: value}
    if value == "absent":
        del page[entry]
    write_raw(path, page)
    with pytest.raises(PolicyFileError) as caught:
        load_policy(path)
    told = {"format": "not a policy file", "version": "format version 1"}
    assert told.get(entry, f"must have the entry `{entry}`") in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def write_raw(path, page):
    """Write a page with its digest, without what ``write_page`` adds."""
    file = io.BytesIO()
    torch.save(page, file)
    data = file.getvalue()
    path.write_bytes(data + b"\nsha256:" + hashlib.sha256(data).hexdigest().encode())


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {}},
        {"spec": {"sizes": "x"}},
        {"spec": {"sizes": [3, 4]}},
        {"state": {}},
        {"state": {"x": torch.zeros(1)}},
    ],
)
def test_entries_that_do_not_fit_their_builder_are_told_in_one_line(path, change):
    write_page(path, torch.load(path, weights_only=True) | change)
    with pytest.raises(PolicyFileError, match=r"must hold what its builder 'Toy' takes") as caught:
        load_policy(path)
    assert "\n" not in str(caught.value)


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('ran code from the file')",))


def test_code_in_a_file_never_runs(tmp_path):
    write_raw(tmp_path / "p", {"format": Bomb()})
    with pytest.raises(PolicyFileError, match="not a readable policy file") as caught:
        load_policy(tmp_path / "p")
    assert "\n" not in str(caught.value)
    # The control: the same object does run where pickles are trusted.
    with pytest.raises(SystemExit):
        pickle.loads(pickle.dumps(Bomb()))


def test_views_store_only_their_part(tmp_path):
    actor = Toy([3, 2])
    big = torch.zeros(1_000_000)
    actor.module.linear.bias = nn.Parameter(big[:2])
    save_policy(tmp_path / "p", actor, {})
    assert (tmp_path / "p").stat().st_size < 100_000


def test_observations_that_the_environment_reshapes():
    sizes = {"choice": [3], "level": [1], "state": [2]}
    actor = SquashedGaussianActor(observation=sizes, low=[-1.0], high=[1.0])
    policy = Policy(actor, {})
    seen = {"choice": np.int64(2), "level": np.float64(0.5), "state": np.zeros(2)}
    as_stored = {"choice": np.float32([0, 0, 1]), "level": np.float32([0.5]), "state": np.zeros(2)}
    assert policy(seen) == policy(as_stored)
    assert policy(seen) != policy({**seen, "choice": np.int64(1)})


SEEN = {"observation": (3,)}


@pytest.fixture
def drawn(tmp_path):
    actor = SquashedGaussianActor(observation=SEEN, low=[-1.0], high=[1.0], num_cells=(8,))
    save_policy(tmp_path / "drawn.pt", actor, {"action_low": [-2.0], "action_high": [2.0]})
    return Policy.load(tmp_path / "drawn.pt")


def test_a_sample_is_drawn_and_a_call_is_the_best(drawn):
    seen = np.zeros((4_000, 3), np.float32)
    sampled = drawn.sample(seen)
    assert sampled.shape == (4_000, 1)
    assert 0.5 < sampled.std() < 2.0
    assert np.abs(sampled).max() <= 2.0
    assert np.unique(drawn(seen)).size == 1
    assert drawn.sample(seen[0]).shape == (1,)


def test_a_policy_is_saved_again(drawn, tmp_path):
    path = drawn.save(tmp_path / "again.pt")
    again, seen = Policy.load(path), np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_array_equal(again(seen), drawn(seen))
    assert again.metadata == drawn.metadata
    with pytest.raises(UsageError, match="`path` must be a new file"):
        again.save(path)


def test_a_policy_moves(drawn):
    moved = drawn.to("meta")
    assert moved is drawn
    assert drawn.device.type == "meta"
    assert drawn.in_own_units.low.device.type == "meta"
    assert all(p.device.type == "meta" for p in drawn.actor.parameters())


def test_observations_of_another_shape_are_named(drawn):
    with pytest.raises(UsageError, match=r"shape \(3,\) for 'observation'.*got \(2, 4\)"):
        drawn(np.zeros((2, 4)))
    with pytest.raises(UsageError, match=r"`observation` must have 'observation', got \['state'\]"):
        drawn({"state": np.zeros(3)})


def test_a_single_choice_is_a_number():
    actor = TensorDictModule(nn.Identity(), in_keys=["observation"], out_keys=["action"])
    action = Policy(actor, {"discrete_actions": "one_hot"})(np.array([0.0, 1.0]))
    assert {1: "taken"}[action] == "taken"


def test_a_file_without_its_weights_is_named(path):
    page = torch.load(path, weights_only=True)
    page["state"].popitem()
    write_page(path, page)
    with pytest.raises(PolicyFileError, match="what its builder 'Toy' takes"):
        load_policy(path)


def test_shapes_and_types_of_nested_entries_come_back(tmp_path):
    actor = Toy([3, 2], ("speed", ("arm", "angle")))
    told = {"speed": [[1], "float32"], ("arm", "angle"): [[2], "float64"], "clock": [[], "os"]}
    save_policy(tmp_path / "p.pt", actor, {"observation": told})
    observed = Policy.load(tmp_path / "p.pt").observed
    assert observed.shapes == {"speed": (1,), ("arm", "angle"): (2,)}
    assert observed.dtypes == {"speed": torch.float32, ("arm", "angle"): torch.float64}
    with pytest.raises(UsageError, match="must be a mapping with"):
        observed(np.zeros(3), torch.device("cpu"))
