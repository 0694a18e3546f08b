"""Q(s, .) over discrete actions, and the policy over it."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from tensordict import TensorDict
from torch.nn.functional import one_hot
from torchrl.collectors import Collector
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type
from value_cases import ACTS, OBS, q_network

from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.collectors.workers.weights import SharedWeights
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import (
    ActionSpaceError,
    DuelingMLP,
    EpsilonGreedyActor,
    QNetwork,
    build_categorical_actor,
    build_q_network,
)
from torchrl_elegant.runs.policy import Policy, load_policy, save_policy

FORM = pytest.mark.parametrize("form", ["one_hot", "categorical"])
DUELING = pytest.mark.parametrize("dueling", [False, True])
MANY = {"speed": (), "arm": (2, 2), ("room", "place"): (3,)}


def states(*batch: int) -> TensorDict:
    return TensorDict({"observation": torch.randn(*batch, OBS)}, batch)


@FORM
@DUELING
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("batch", [(), (6,), (2, 3)])
def test_it_writes_what_a_q_value_actor_writes(form, dueling, members, batch):
    net, data = q_network(form, members, dueling=dueling), states(*batch)
    values = net.values([data["observation"]])
    assert values.shape == (members, *batch, ACTS)
    data = net(data)
    torch.testing.assert_close(data["action_value"], values.mean(0))
    best = values.mean(0).argmax(-1)
    index = data["action"].argmax(-1) if form == "one_hot" else data["action"]
    torch.testing.assert_close(index, best)
    assert data["action"].shape == ((*batch, ACTS) if form == "one_hot" else batch)
    assert data["chosen_action_value"].shape == (*batch, 1)
    torch.testing.assert_close(data["chosen_action_value"], values.mean(0).amax(-1, keepdim=True))


@DUELING
def test_members_are_networks_of_their_own(dueling):
    net, data = q_network(num_members=2, dueling=dueling), states(5)
    before = net.values([data["observation"]])
    assert not torch.allclose(before[0], before[1])
    with torch.no_grad():
        for param in net.net.parameters():
            param[0] += 1.0
    after = net.values([data["observation"]])
    torch.testing.assert_close(after[1], before[1])
    assert not torch.allclose(after[0], before[0])


def test_dueling_streams():
    """Q = V + A - mean A; the value stream moves all actions alike, a shift of A moves none."""
    net = DuelingMLP(num_members=1, in_features=OBS, out_features=ACTS, num_cells=(8, 6))
    assert net.body.weight_1.shape == (1, 8, 12)
    x = torch.randn(5, OBS)
    hidden = torch.relu(net.body(x))
    value, advantage = net.value(hidden[..., :6]), net.advantage(hidden[..., 6:])
    by_hand = value + advantage - advantage.sum(-1, keepdim=True) / ACTS
    torch.testing.assert_close(net(x), by_hand)
    before = net(x)
    with torch.no_grad():
        net.advantage.bias_0 += 2.0
        torch.testing.assert_close(net(x), before)
        net.value.bias_0 += 2.0
    torch.testing.assert_close(net(x), before + 2.0)
    with pytest.raises(ValueError, match="`num_cells` must hold the streams' hidden layer"):
        DuelingMLP(num_members=1, in_features=OBS, out_features=ACTS, num_cells=())


@FORM
def test_several_entries_and_nested_actions(form):
    net = q_network(form, observation=MANY, action_key=("agent", "act"))
    data = TensorDict(
        {
            "speed": torch.randn(7),
            "arm": torch.randn(7, 2, 2),
            "room": {"place": torch.randint(5, (7, 3))},
        },
        [7],
    )
    parts = data["speed"].unsqueeze(-1), data["arm"].flatten(1), data["room", "place"].float()
    expected = net.net(torch.cat(parts, -1))[0]
    torch.testing.assert_close(net(data)["action_value"], expected)
    policy = EpsilonGreedyActor(net)
    assert policy.in_keys == list(MANY)
    torch.testing.assert_close(policy(data.clone())["agent", "act"], data["agent", "act"])


def test_wrong_arguments_are_named():
    shapes = {"observation": (OBS,)}
    with pytest.raises(ValueError, match="`choices` must be at least 1, got `0`"):
        QNetwork(observation=shapes, choices=0)
    with pytest.raises(ValueError, match="`form` must be 'one_hot' or 'categorical', got `index`"):
        QNetwork(observation=shapes, choices=2, form="index")
    with pytest.raises(ValueError, match="`num_members` must be at least 1, got `0`"):
        QNetwork(observation=shapes, choices=2, num_members=0)
    actor = EpsilonGreedyActor(q_network())
    for bad in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"`epsilon` must lie in \[0, 1\], got"):
            EpsilonGreedyActor(q_network(), epsilon=bad)
        with pytest.raises(ValueError, match=r"`epsilon` must lie in \[0, 1\], got"):
            actor.explore(bad)


# ---- the policy ---------------------------------------------------------------------------------


@FORM
def test_greedy_unless_asked_to_explore(form):
    actor, data = EpsilonGreedyActor(q_network(form), epsilon=1.0), states(300)
    best = actor.network(data.clone())["action"]
    for mode in (ExplorationType.DETERMINISTIC, ExplorationType.MODE, ExplorationType.MEAN):
        with set_exploration_type(mode):
            assert torch.equal(actor(data.clone())["action"], best)
    with set_exploration_type(ExplorationType.RANDOM):
        assert not torch.equal(actor(data.clone())["action"], best)
    assert not torch.equal(actor(data.clone())["action"], best)
    actor.explore(0.0)
    assert torch.equal(actor(data.clone())["action"], best)


def test_exploration_is_drawn_for_each_row():
    actor = EpsilonGreedyActor(q_network("categorical"), epsilon=0.4)
    data = states(1).expand(20_000).clone()
    best = actor.network(data[:1].clone())["action"]
    action = actor(data)["action"]
    counts = torch.bincount(action, minlength=ACTS).double() / len(action)
    expected = torch.full((ACTS,), 0.1, dtype=torch.float64)
    expected[best] += 0.6
    # Five standard deviations; drawn once for all rows, one number would be 1.
    torch.testing.assert_close(counts, expected, atol=5 * 0.5 / 141, rtol=0.0)


@FORM
def test_act_gives_what_forward_writes(form):
    actor, data = EpsilonGreedyActor(q_network(form), epsilon=0.5), states(4)
    torch.manual_seed(0)
    action = actor.act(data["observation"])
    torch.manual_seed(0)
    assert torch.equal(actor(data)["action"], action)


@FORM
@pytest.mark.parametrize("num_envs", [None, 3])
def test_collectors_call_it_directly(form, num_envs):
    env = make_env("CartPole-v1", num_envs, discrete_actions=form)
    actor = EpsilonGreedyActor(build_q_network(env, num_cells=(8,)), epsilon=0.5)
    frames = 6 * (num_envs or 1)
    collector = SyncCollector(env, actor, frames_per_batch=frames, total_frames=frames)
    assert collector.is_lean
    assert collector._fast._direct is not None
    (batch,) = list(collector)
    assert batch["action"].dtype == env.action_spec.dtype
    assert env.full_action_spec_unbatched["action"].is_in(batch["action"][(0,) * batch.ndim])


def test_a_lean_collector_gives_what_torchrls_gives():
    batches = []
    for kind in (SyncCollector, Collector):
        torch.manual_seed(1)
        env = make_env("CartPole-v1", 2, seed=3)
        torch.manual_seed(2)
        actor = EpsilonGreedyActor(build_q_network(env, num_cells=(8,)), epsilon=0.3)
        collector = kind(env, actor, frames_per_batch=40, total_frames=40)
        torch.manual_seed(4)
        batches.append(next(iter(collector)))
    for key in ("observation", "action", ("next", "observation"), ("next", "done")):
        torch.testing.assert_close(batches[0][key], batches[1][key])


def test_epsilon_travels_with_the_weights():
    source = EpsilonGreedyActor(q_network(), epsilon=0.7)
    worker = EpsilonGreedyActor(q_network())
    weights = SharedWeights(source)
    assert weights.pull(worker)
    assert worker.epsilon.item() == pytest.approx(0.7)
    source.explore(0.1)
    weights.publish(source)
    assert weights.pull(worker)
    assert worker.epsilon.item() == pytest.approx(0.1)


@FORM
@DUELING
def test_a_policy_file_keeps_it(form, dueling, tmp_path):
    net = q_network(form, 2, dueling=dueling, activation="tanh")
    actor, data = EpsilonGreedyActor(net, epsilon=0.5), states(6)
    save_policy(tmp_path / "policy.pt", actor, {"discrete_actions": form, "action_start": 1})
    loaded = load_policy(tmp_path / "policy.pt")
    assert isinstance(loaded, EpsilonGreedyActor)
    assert loaded.spec_dict() == actor.spec_dict()
    assert loaded.epsilon == 0.5
    best = net(data.clone())["action"]
    policy = Policy.load(tmp_path / "policy.pt")
    index = best.argmax(-1) if form == "one_hot" else best
    assert (policy(data["observation"].numpy()) == index.numpy() + 1).all()


@pytest.mark.parametrize("change", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_act_alike(change):
    actor, data = EpsilonGreedyActor(q_network()), states(9)
    assert torch.equal(change(actor)(data.clone())["action"], actor(data)["action"])


# ---- from specs ---------------------------------------------------------------------------------


@FORM
@pytest.mark.parametrize("build", [build_q_network, build_categorical_actor])
def test_networks_fit_the_environment(build, form):
    env = make_env("CartPole-v1", 3, discrete_actions=form)
    net = build(env, num_cells=(8,))
    assert net.choices == 2
    data = env.rollout(4, net)
    assert data["action"].dtype == env.action_spec.dtype
    assert env.action_spec.is_in(data["action"][:, 0])


@pytest.mark.parametrize("build", [build_q_network, build_categorical_actor])
def test_continuous_actions_are_refused(build):
    env: EnvBase = make_env("Pendulum-v1")
    with pytest.raises(ActionSpaceError, match="needs a discrete action space, got `Bounded") as e:
        build(env)
    assert e.value.kind == "continuous"


def test_one_hot_actions_of_another_kind():
    net = q_network()
    data = states(5)
    index = net(data)["action"].argmax(-1)
    assert torch.equal(data["action"], one_hot(index, ACTS))
