"""Action masks: forbidden actions are never drawn, and never valued."""

from __future__ import annotations

import math

import masked_toys
import pytest
import torch
from tensordict import TensorDict
from torch import nn
from torchrl.data import Categorical, MultiOneHot, OneHot
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import MLP, QValueActor

from torchrl_elegant.envs import make_env
from torchrl_elegant.envs.spaces import random_allowed
from torchrl_elegant.functional import allowed_choices
from torchrl_elegant.modules import (
    CategoricalActor,
    EpsilonGreedyActor,
    MultiCategoricalActor,
    QNetwork,
    build_categorical_actor,
    build_q_network,
    build_stochastic_actor,
    build_value,
    normalizable,
)
from torchrl_elegant.modules.action_mask import MaskedNet
from torchrl_elegant.runs.policy import Policy, load_policy, save_policy

SEEN = {"seen": (2,)}
FORMS = pytest.mark.parametrize("form", ["one_hot", "categorical"])


def rows(count: int, choices: int) -> TensorDict:
    torch.manual_seed(0)
    mask = torch.rand(count, choices) < 0.4
    mask[torch.arange(count), torch.randint(choices, (count,))] = True
    return TensorDict({"seen": torch.randn(count, 2), "action_mask": mask}, [count])


def index_of(action: torch.Tensor, form: str) -> torch.Tensor:
    return action.argmax(-1) if form == "one_hot" else action


@FORMS
@pytest.mark.parametrize("kind", [ExplorationType.RANDOM, ExplorationType.DETERMINISTIC])
def test_a_categorical_actor_takes_allowed_actions(form, kind):
    actor = CategoricalActor(observation=SEEN, choices=6, form=form, action_mask="action_mask")
    nn.init.normal_(actor.net.net.layers[-1].weight, std=3.0)
    data = rows(500, 6)
    with set_exploration_type(kind):
        index = index_of(actor(data)["action"], form)
    assert data["action_mask"].gather(-1, index[:, None]).all()
    # Probabilities are those of the allowed logits alone.
    logits = actor.net.net(data["seen"]).masked_fill(~data["action_mask"], -math.inf)
    expected = logits.log_softmax(-1).gather(-1, index[:, None]).squeeze(-1)
    torch.testing.assert_close(data["action_log_prob"], expected)
    torch.testing.assert_close(actor.get_dist(data).log_prob(data["action"]), expected)


@FORMS
def test_several_choices_have_their_masks_side_by_side(form):
    actor = MultiCategoricalActor(
        observation=SEEN, choices=(3, 2), form=form, action_mask="action_mask"
    )
    mask = torch.tensor([[0, 1, 0, 0, 1], [1, 0, 0, 1, 0]]).repeat(50, 1)
    data = actor(TensorDict({"seen": torch.randn(100, 2), "action_mask": mask}, [100]))
    if form == "one_hot":
        assert torch.equal(data["action"], mask)
    else:
        assert data["action"][:2].tolist() == [[1, 1], [0, 0]]
    assert data["action_log_prob"].abs().max() < 1e-6


def test_values_of_forbidden_actions_are_never_the_largest():
    net = QNetwork(observation=SEEN, choices=5, num_members=3, action_mask="action_mask")
    data = net(rows(200, 5))
    mask, index = data["action_mask"], data["action"].argmax(-1)
    values = net.net.net(data["seen"]).mean(0)
    assert torch.equal(index, values.masked_fill(~mask, -math.inf).argmax(-1))
    torch.testing.assert_close(data["action_value"][mask], values[mask])
    assert data["action_value"].isfinite().all()
    assert data["chosen_action_value"].isfinite().all()


def test_values_are_those_of_a_q_value_actor_of_torchrl():
    net = QNetwork(observation=SEEN, choices=5, num_cells=(8,), action_mask="action_mask")
    plain = MLP(in_features=2, out_features=5, num_cells=[8], activation_class=nn.ReLU)
    for i, layer in ((0, plain[0]), (1, plain[2])):
        inner = net.net.net
        layer.weight.data.copy_(getattr(inner, f"weight_{i}")[0].t())
        layer.bias.data.copy_(getattr(inner, f"bias_{i}")[0, 0])
    theirs = QValueActor(plain, in_keys=["seen"], spec=OneHot(5), action_mask_key="action_mask")
    ours, other = net(rows(50, 5)), theirs(rows(50, 5))
    torch.testing.assert_close(ours["chosen_action_value"], other["chosen_action_value"])
    assert torch.equal(ours["action"].bool(), other["action"].bool())


@FORMS
def test_epsilon_draws_evenly_from_allowed_actions(form):
    net = QNetwork(observation=SEEN, choices=4, form=form, action_mask="action_mask")
    actor = EpsilonGreedyActor(net, epsilon=1.0)
    mask = torch.tensor([True, False, True, True]).expand(3000, 4)
    data = actor(TensorDict({"seen": torch.randn(3000, 2), "action_mask": mask}, [3000]))
    counts = index_of(data["action"], form).bincount(minlength=4)
    assert counts[1] == 0
    assert counts[[0, 2, 3]].min() > 900


def test_where_all_is_forbidden_all_is_allowed():
    actor = CategoricalActor(observation=SEEN, choices=3, action_mask="action_mask")
    data = {"seen": torch.randn(2, 2), "action_mask": torch.zeros(2, 3)}
    found = actor(TensorDict(data, [2]))
    assert found["action_log_prob"].isfinite().all()
    assert allowed_choices(torch.zeros(2, 3), (3,)).all()
    assert allowed_choices(torch.tensor([[0, 0, 1, 0]]), (2, 2)).tolist() == [[True] * 3 + [False]]


def test_entropy_and_its_gradient_are_finite_with_one_action_left():
    actor = CategoricalActor(observation=SEEN, choices=3, action_mask="action_mask")
    head = actor.head([torch.randn(1, 2), torch.tensor([[False, True, False]])])
    (1e3 * head.entropy().sum()).backward()
    assert head.entropy().item() == 0.0
    assert all(param.grad.isfinite().all() for param in actor.parameters())


def test_a_mask_beside_a_picture():
    net = QNetwork(observation={"pixels": (3, 16, 16)}, choices=4, action_mask="action_mask")
    mask = torch.tensor([[False, True, False, False]]).expand(5, 4)
    pixels = torch.randint(255, (5, 3, 16, 16), dtype=torch.uint8)
    data = net(TensorDict({"pixels": pixels, "action_mask": mask}, [5]))
    assert torch.equal(data["action"].bool(), mask)


@pytest.mark.parametrize(
    ("spec", "mask", "drawn"),
    [
        (OneHot(3), [[0, 1, 0]], [[0, 1, 0]]),
        (Categorical(3), [[0, 0, 1]], [2]),
        (MultiOneHot([2, 3]), [[0, 1, 1, 0, 0]], [[0, 1, 1, 0, 0]]),
    ],
)
def test_random_actions_are_allowed_ones(spec, mask, drawn):
    action = random_allowed(spec, torch.tensor(mask))
    assert action.tolist() == drawn
    assert action.dtype == spec.dtype


def test_a_mask_is_no_input_unless_asked():
    env = make_env("masked_toys:Doors")
    for build in (build_categorical_actor, build_q_network, build_stochastic_actor):
        network = build(env, num_cells=(8,))
        assert network.in_keys == ["seen", "action_mask"]
        assert isinstance(network.net, MaskedNet)
        before = network.net.net(torch.zeros(1, 2))
        asked = build(env, num_cells=(8,), in_keys=["action_mask", "seen"])
        assert asked.in_keys == ["seen", "action_mask"]
        assert asked.net.net(torch.zeros(1, 6)).shape == before.shape
    assert build_value(env).in_keys == ["seen"]
    assert build_value(env, in_keys=["seen", "action_mask"]).inputs.features == 6
    assert list(normalizable(env)) == ["seen"]


def test_a_mask_of_another_size_is_refused():
    class Wrong(masked_toys.Doors):
        def __init__(self):
            super().__init__()
            self.action_space.n = 3

    with pytest.raises(ValueError, match=r"`action_mask` must have one number for each of the 3"):
        build_q_network(make_env(Wrong))


def test_an_entry_of_that_name_is_an_entry_where_actions_are_continuous():
    from gymnasium import spaces

    class Continuous(masked_toys.Doors):
        def __init__(self):
            super().__init__()
            self.action_space = spaces.Box(-1.0, 1.0, (1,))

    assert build_stochastic_actor(make_env(Continuous)).in_keys == ["seen"]


@pytest.mark.parametrize("choices", [4, (3, 2)])
def test_an_exported_policy_takes_allowed_actions(choices, tmp_path):
    if isinstance(choices, int):
        net = QNetwork(observation=SEEN, choices=choices, action_mask="action_mask")
        actor, size = EpsilonGreedyActor(net, epsilon=0.5), choices
    else:
        actor = MultiCategoricalActor(observation=SEEN, choices=choices, action_mask="action_mask")
        size = sum(choices)
    save_policy(tmp_path / "policy.pt", actor, {"discrete_actions": "one_hot"})
    assert load_policy(tmp_path / "policy.pt").spec_dict() == actor.spec_dict()
    policy = Policy.load(tmp_path / "policy.pt")
    for only in range(size):
        mask = [float(i == only) for i in range(size)]
        data = {"seen": torch.randn(2).numpy(), "action_mask": mask}
        action = policy.actor(policy.observed(data, policy.device))["action"]
        assert action[only] == 1


def test_several_masks_of_one_action_are_refused():
    from gymnasium import spaces

    class Two(masked_toys.NestedDoors):
        def __init__(self):
            super().__init__()
            one = self.env.observation_space
            self.observation_space = spaces.Dict(first=one, second=one)

    with pytest.raises(ValueError, match="`env` must have one action mask, or one beside its act"):
        build_q_network(make_env(Two))
