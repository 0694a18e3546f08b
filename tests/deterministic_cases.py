"""Networks, losses and comparisons that the tests of DDPG's and TD3's losses share."""

from __future__ import annotations

import torch
from sac_cases import ACT, CELLS, HIGH, LOW, OBS, Q, gradients, seeded
from sameness import as_written_by
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from torchrl.data import Bounded
from torchrl.modules import Actor, ValueOperator
from torchrl.objectives import DDPGLoss as TorchRLDDPGLoss
from torchrl.objectives import TD3Loss as TorchRLTD3Loss

from torchrl_elegant.modules import DeterministicActor, EnsembleCritic
from torchrl_elegant.objectives import DDPGLoss, TD3Loss

THEIRS = {DDPGLoss: TorchRLDDPGLoss, TD3Loss: TorchRLTD3Loss}
# What TD3 has to be told, and DDPG does not know.
BOUNDS = {DDPGLoss: {}, TD3Loss: {"bounds": (-1.0, 1.0)}}


# ---- our networks -------------------------------------------------------------------------------


def lean_actor(low=LOW, high=HIGH, **options) -> DeterministicActor:
    actor = DeterministicActor(
        observation={"observation": (OBS,)}, low=low, high=high, num_cells=(CELLS,), **options
    )
    with torch.no_grad():  # away from the near-zero output it starts with
        actor.net.layers[-1].weight.normal_()
        actor.net.layers[-1].bias.normal_()
    return actor


def lean_critic(num_critics=1) -> EnsembleCritic:
    return EnsembleCritic(
        observation={"observation": (OBS,)},
        action_shape=(ACT,),
        num_critics=num_critics,
        num_cells=(CELLS,),
    )


def lean_ddpg(**options) -> DDPGLoss:
    return moved(DDPGLoss(lean_actor(), lean_critic(), **options))


def lean_td3(num_critics=3, **options) -> TD3Loss:
    return moved(TD3Loss(lean_actor(), lean_critic(num_critics), **options))


# ---- TorchRL's networks -------------------------------------------------------------------------


def torchrl_actor(observation="observation", action="action") -> Actor:
    net = nn.Sequential(nn.Linear(OBS, CELLS), nn.Tanh(), nn.Linear(CELLS, ACT), nn.Tanh())
    return Actor(net, in_keys=[observation], out_keys=[action], spec=Bounded(-1.0, 1.0, (ACT,)))


def torchrl_critic(observation="observation", action="action", value="state_action_value"):
    return ValueOperator(Q(), in_keys=[observation, action], out_keys=[value])


def shared_encoder():
    """Actor and Q network that read the same encoder."""
    encoder = TensorDictModule(nn.Linear(OBS, CELLS), in_keys=["observation"], out_keys=["hidden"])
    actor = TensorDictSequential(
        encoder, TensorDictModule(nn.Linear(CELLS, ACT), in_keys=["hidden"], out_keys=["action"])
    )
    critic = TensorDictModule(
        Q(CELLS + ACT), in_keys=["hidden", "action"], out_keys=["state_action_value"]
    )
    return actor, TensorDictSequential(encoder, critic)


def ordinary():
    return torchrl_actor(), torchrl_critic()


# ---- comparisons --------------------------------------------------------------------------------


def moved(loss):
    """The loss, its targets away from what they follow."""
    for name in [name for name in loss._modules if name.startswith("target_")]:
        for key, value in loss._modules[name].items(True, True):
            if key not in ("low", "high"):  # an actor's bounds follow nothing
                value.data.add_(0.3 * torch.randn_like(value))
    return loss


def twins(kind, make_networks=ordinary, **options):
    """TorchRL's loss and ours over networks of the same architecture and values."""
    options = {**BOUNDS[kind], **options} if "action_spec" not in options else options
    theirs = moved(THEIRS[kind](*make_networks(), **options))
    ours = kind(*make_networks(), **options)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def assert_equal_losses(theirs, ours, batch) -> None:
    """Same outputs, priorities and gradients on the same noise."""
    expected, batch_a = seeded(theirs, batch)
    actual, batch_b = seeded(ours, batch)
    assert set(actual.keys()) == set(expected.keys())
    for name, value in expected.items():
        found = as_written_by(theirs, actual[name]) if name == "td_error" else actual[name]
        # TorchRL's DDPG hands out a prediction that still has its graph.
        torch.testing.assert_close(found.detach(), value.detach(), atol=1e-5, rtol=1e-5, msg=name)
    key = theirs.tensor_keys.priority
    priority = as_written_by(theirs, batch_b.get(key))
    torch.testing.assert_close(priority, batch_a.get(key), atol=1e-5, rtol=1e-5)
    keys = batch.keys(True, True)
    assert {name for name in batch_b.keys(True, True) if name not in keys} == {key}
    wanted, found = gradients(theirs, expected), gradients(ours, actual)
    assert wanted.keys() == found.keys()
    for name, grad in wanted.items():
        if grad is None or found[name] is None:
            assert all(x is None or not x.any() for x in (grad, found[name])), name
        else:
            torch.testing.assert_close(found[name], grad, atol=1e-5, rtol=1e-5, msg=name)
