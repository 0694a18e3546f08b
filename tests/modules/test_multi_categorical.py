"""Several choices at once: each component's own distribution, in both ways of writing."""

from __future__ import annotations

import math

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch.distributions import Categorical
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import MultiCategoricalActor, build_stochastic_actor
from torchrl_elegant.runs.policy import Policy, load_policy, save_policy

CHOICES = pytest.mark.parametrize("choices", [(4, 2, 3), (3, 3), (5,)], ids=str)
FORMS = pytest.mark.parametrize("form", ["one_hot", "categorical"])


def actor_of(choices=(4, 2, 3), form="one_hot", **options) -> MultiCategoricalActor:
    actor = MultiCategoricalActor(
        observation={"observation": (3,)}, choices=choices, form=form, num_cells=(8,), **options
    )
    with torch.no_grad():  # away from the near-zero output it starts with
        actor.net.layers[-1].weight.normal_()
    return actor


def components(actor, data) -> list[Categorical]:
    logits = actor.net(data["observation"]).split(list(actor.choices), -1)
    return [Categorical(logits=part) for part in logits]


def indices(actor, action) -> list[torch.Tensor]:
    if actor.form == "categorical":
        return list(action.unbind(-1))
    return [block.argmax(-1) for block in action.split(list(actor.choices), -1)]


def states(*batch: int) -> TensorDict:
    return TensorDict({"observation": torch.randn(*batch, 3)}, batch)


@FORMS
@CHOICES
@pytest.mark.parametrize("batch", [(), (6,), (2, 3)])
def test_log_prob_entropy_and_gradients_are_the_sums_over_components(form, choices, batch):
    actor, data = actor_of(choices, form), states(*batch)
    actor(data)
    parts, chosen = components(actor, data), indices(actor, data["action"])
    expected = sum(part.log_prob(index) for part, index in zip(parts, chosen, strict=True))
    torch.testing.assert_close(data["action_log_prob"], expected)
    head = actor.head([data["observation"]])
    entropy = sum(part.entropy() for part in parts)
    torch.testing.assert_close(head.entropy(), entropy)
    for ours, plain in ((head.log_prob(data["action"]), expected), (head.entropy(), entropy)):
        grads = [
            torch.autograd.grad(x.sum(), list(actor.net.parameters()), retain_graph=True)
            for x in (ours, plain)
        ]
        torch.testing.assert_close(*grads, atol=1e-5, rtol=1e-4)


@FORMS
def test_torchrls_losses_get_the_same_distribution(form):
    actor, data = actor_of(form=form), states(7)
    actor(data)
    dist = actor.get_dist(data)
    torch.testing.assert_close(dist.log_prob(data["action"]), data["action_log_prob"])
    torch.testing.assert_close(dist.entropy(), sum(p.entropy() for p in components(actor, data)))
    drawn = dist.sample((5,))
    assert drawn.shape == (5, *data["action"].shape)
    assert dist.log_prob(drawn).shape == (5, 7)
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        mode = actor(data.clone())["action"]
    assert torch.equal(dist.mode, mode)
    assert torch.equal(dist.deterministic_sample, mode)


@FORMS
def test_samples_have_the_probabilities_of_each_component(form):
    actor = actor_of(form=form)
    data = actor(states(1).expand(40_000).clone())
    for part, index in zip(components(actor, data), indices(actor, data["action"]), strict=True):
        wanted = part.probs[0].detach()
        found = index.bincount(minlength=len(wanted)) / 40_000
        torch.testing.assert_close(found, wanted, atol=0.012, rtol=0.0)


def test_a_new_policy_prefers_nothing_and_knows_no_empty_places():
    actor = MultiCategoricalActor(observation={"observation": (3,)}, choices=(4, 2))
    head = actor.head([torch.randn(5, 3)])
    torch.testing.assert_close(head.entropy(), torch.full((5,), math.log(8)), atol=1e-2, rtol=0.0)
    assert head.log_probs.isinf().sum() == 10  # two of four places of the second, five times


class Grid(gymnasium.Env):
    observation_space = spaces.Box(-1.0, 1.0, (2,))

    def __init__(self, action_space=None) -> None:
        self.action_space = action_space or spaces.MultiDiscrete([4, 2], start=[-1, 10])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(np.asarray(action)), action
        return np.zeros(2, np.float32), 0.0, False, False, {}


@FORMS
@pytest.mark.parametrize(
    "space",
    [
        spaces.MultiDiscrete([4, 2], start=[-1, 10]),
        spaces.MultiDiscrete([[4, 2], [3, 3]], start=[[1, 2], [3, 4]]),
    ],
    ids=["flat", "table"],
)
def test_environments_and_plain_gymnasium_take_its_actions(form, space, tmp_path):
    env = make_env(lambda: Grid(space), 5, discrete_actions=form)
    actor = build_stochastic_actor(env, num_cells=(8,))
    assert isinstance(actor, MultiCategoricalActor)
    assert (actor.choices, actor.form) == (tuple(space.nvec.flatten().tolist()), form)
    with torch.no_grad():
        actor.net.layers[-1].weight.normal_()
    data = env.rollout(4, actor)
    assert env.action_spec.is_in(data["action"][:, 0])
    assert data["action"].dtype == env.action_spec.dtype
    codec = env.simulators.codec
    about = {"discrete_actions": form, "action_start": codec.start, "action_sizes": codec.sizes}
    save_policy(tmp_path / "policy.pt", actor, about)
    assert load_policy(tmp_path / "policy.pt").spec_dict() == actor.spec_dict()
    policy = Policy.load(tmp_path / "policy.pt")
    seen = np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)
    with set_exploration_type(ExplorationType.DETERMINISTIC), torch.no_grad():
        written = actor.act(torch.from_numpy(seen))[0]
    taken = policy(seen)
    np.testing.assert_array_equal(taken, codec.decode(written.numpy()))
    np.testing.assert_array_equal(taken[3], policy(seen[3]))
    assert all(space.contains(action) for action in taken)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"choices": ()}, r"`choices` must hold numbers of 1 or more, got `\(\)`"),
        ({"choices": (3, 0)}, r"`choices` must hold .*, got `\(3, 0\)`"),
        ({"form": "index"}, "`form` must be 'one_hot' or 'categorical', got `index`"),
    ],
)
def test_wrong_arguments_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        actor_of(**options)
