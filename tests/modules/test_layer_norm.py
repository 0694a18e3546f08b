"""Layer normalization before the activations of a network."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_elegant import Policy, Trial
from torchrl_elegant.algorithms import ALGORITHMS, DQNConfig, HTermConfig, PPOConfig, SACConfig
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import ACTIVATIONS, MLP, DuelingMLP, EnsembleMLP, layer_normalized
from torchrl_elegant.runs.policy import save_policy


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_layer_is_normalized_before_its_activation(activation):
    net = MLP(
        in_features=3, out_features=2, num_cells=(8,), activation=layer_normalized(activation)
    )
    first, last = net.linears()
    x = torch.randn(5, 3)
    hidden = nn.LayerNorm(8, elementwise_affine=False)(first(x))
    torch.testing.assert_close(net(x), last(ACTIVATIONS[activation](hidden)))
    net(x).sum().backward()
    assert all(param.grad.isfinite().all() for param in net.parameters())


def test_members_are_normalized_each_by_itself():
    net = EnsembleMLP(
        num_members=3, in_features=3, out_features=1, num_cells=(8,), activation="layer_norm_relu"
    )
    x = torch.randn(5, 3)
    for i in range(3):
        hidden = F.layer_norm(x @ net.weight_0[i] + net.bias_0[i], (8,)).relu()
        torch.testing.assert_close(net(x)[i], hidden @ net.weight_1[i] + net.bias_1[i])


def test_large_inputs_do_not_make_large_values():
    torch.manual_seed(0)
    plain, normed = (
        DuelingMLP(
            num_members=1, in_features=3, out_features=2, num_cells=(8, 8), activation=activation
        )
        for activation in ("relu", "layer_norm_relu")
    )
    x = 1e4 * torch.randn(20, 3)
    assert plain(x).abs().max() > 1e3
    assert normed(x).abs().max() < 20.0


CRITICS = {
    **dict.fromkeys(("ppo", "a2c"), "critic_network"),
    **dict.fromkeys(("dqn", "double_dqn", "dueling_dqn", "d3qn", "ddpg"), "value_network"),
    **dict.fromkeys(("sac", "modsac", "redq", "td3", "discrete_sac"), "qvalue_network"),
}


@pytest.mark.parametrize("name", CRITICS)
@pytest.mark.parametrize(
    ("where", "actor", "critic"),
    [("none", False, False), ("critics", False, True), ("all", True, True)],
)
def test_the_option_says_where(name, where, actor, critic):
    kind = ALGORITHMS[name]
    loss = kind(num_cells=(8,), layer_norm=where).build(make_env(kind.example)).loss
    assert getattr(loss, CRITICS[name]).net.activation.startswith("layer_norm_") == critic
    if kind.has_actor:
        assert loss.actor_network.net.activation.startswith("layer_norm_") == actor


@pytest.mark.parametrize(
    "config",
    [
        SACConfig(num_cells=(8,), batch_size=8, warmup=8, layer_norm="all"),
        DQNConfig(num_cells=(8,), batch_size=8, warmup=8, layer_norm="critics"),
        PPOConfig(num_cells=(8,), batch_size=8, layer_norm="all"),
        PPOConfig(
            num_cells=(8,), batch_size=8, layer_norm="all", hterm=HTermConfig(horizon=4, period=1)
        ),
    ],
    ids=["sac", "dqn", "ppo", "ppo with the H-term"],
)
def test_it_trains_and_its_policy_file_acts_the_same(config, tmp_path):
    with Trial(config, config.example, num_envs=2, total_frames=96, frames_per_batch=32) as trial:
        trial.train(frames=96)
        policy = trial.learner.policy
        save_policy(tmp_path / "policy.pt", policy, {})
        env = make_env(config.example, 2, seed=0)
        loaded = Policy.load(tmp_path / "policy.pt").actor
        data = env.reset()
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            assert torch.equal(loaded(data.clone())["action"], policy(data.clone())["action"])
        env.close()


def test_an_unknown_place_is_refused():
    with pytest.raises(ValueError, match="`layer_norm` must be one of none, critics, all, got `a"):
        SACConfig(layer_norm="actors")
