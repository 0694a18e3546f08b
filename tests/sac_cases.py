"""Networks, batches and comparisons that the tests of SAC's losses share."""

from __future__ import annotations

from functools import partial

import torch
from sameness import as_written_by
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import (
    CompositeDistribution,
    ProbabilisticTensorDictModule,
    ProbabilisticTensorDictSequential,
    TensorDictModule,
    TensorDictSequential,
)
from torch import nn
from torchrl.data import Bounded, Composite
from torchrl.modules import NormalParamExtractor, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import SACLoss as TorchRLSACLoss

from torchrl_elegant.modules import EnsembleCritic, SquashedGaussianActor
from torchrl_elegant.objectives import SACLoss

OBS, ACT, CELLS = 3, 2, 8
TERMS = ("loss_actor", "loss_qvalue", "loss_alpha", "alpha", "entropy")
LOW, HIGH = [-2.0, -1.0], [1.0, 3.0]


# ---- our networks -------------------------------------------------------------------------------


def lean_actor(low=(-1.0, -1.0), high=(1.0, 1.0), activation="relu") -> SquashedGaussianActor:
    actor = SquashedGaussianActor(
        observation={"observation": (OBS,)},
        low=list(low),
        high=list(high),
        num_cells=(CELLS,),
        activation=activation,
    )
    with torch.no_grad():  # away from the near-zero output it starts with
        actor.net.layers[-1].weight.normal_()
        actor.net.layers[-1].bias.normal_()
    return actor


def lean_critic(num_critics=2) -> EnsembleCritic:
    return EnsembleCritic(
        observation={"observation": (OBS,)},
        action_shape=(ACT,),
        num_critics=num_critics,
        num_cells=(CELLS,),
    )


def lean_loss(num_critics=2, *, low=LOW, high=HIGH, loss=SACLoss, **options) -> SACLoss:
    """Our loss over our networks, its targets away from its critics."""
    made = loss(lean_actor(low, high), lean_critic(num_critics), **options)
    move_targets(made)
    return made


# ---- TorchRL's networks -------------------------------------------------------------------------


class Q(nn.Module):
    def __init__(self, features=OBS + ACT):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, CELLS), nn.Tanh(), nn.Linear(CELLS, 1))

    def forward(self, observation, action):
        if isinstance(action, TensorDictBase):
            action = action.get("action1")
        return self.net(torch.cat([observation, action], -1))


def torchrl_actor(observation="observation", action="action", with_spec=True):
    net = nn.Sequential(
        nn.Linear(OBS, CELLS), nn.Tanh(), nn.Linear(CELLS, 2 * ACT), NormalParamExtractor()
    )
    spec = Bounded(-1.0, 1.0, (ACT,))
    return ProbabilisticActor(
        TensorDictModule(net, in_keys=[observation], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        out_keys=[action],
        distribution_class=TanhNormal,
        return_log_prob=True,
        spec=Composite({action: spec}) if with_spec else None,
    )


def torchrl_critic(observation="observation", action="action", value="state_action_value"):
    return ValueOperator(Q(), in_keys=[observation, action], out_keys=[value])


def composite_actor():
    """An actor whose action is itself a TensorDict, and the spec of that action."""
    net = nn.Sequential(nn.Linear(OBS, 2 * ACT), NormalParamExtractor())
    keys = [("params", "action1", "loc"), ("params", "action1", "scale")]
    spec = Composite({"action": {"action1": Bounded(-1.0, 1.0, (ACT,))}})
    actor = ProbabilisticActor(
        TensorDictModule(net, in_keys=["observation"], out_keys=keys),
        in_keys=["params"],
        out_keys=["action"],
        distribution_class=partial(CompositeDistribution, distribution_map={"action1": TanhNormal}),
        spec=spec,
    )
    return actor, spec


def shared_encoder():
    """Actor and Q network that read the same encoder."""
    encoder = TensorDictModule(nn.Linear(OBS, CELLS), in_keys=["observation"], out_keys=["hidden"])
    head = nn.Sequential(nn.Linear(CELLS, 2 * ACT), NormalParamExtractor())
    actor = ProbabilisticTensorDictSequential(
        encoder,
        TensorDictModule(head, in_keys=["hidden"], out_keys=["loc", "scale"]),
        ProbabilisticTensorDictModule(
            in_keys=["loc", "scale"], out_keys=["action"], distribution_class=TanhNormal
        ),
    )
    critic = TensorDictModule(
        Q(CELLS + ACT), in_keys=["hidden", "action"], out_keys=["state_action_value"]
    )
    return actor, TensorDictSequential(encoder, critic)


# ---- batches ------------------------------------------------------------------------------------


def make_batch(*shape: int, dtype=torch.float32) -> TensorDict:
    """Random transitions, some terminated, some only truncated."""
    shape = shape or (24,)
    terminated = torch.rand(*shape, 1) < 0.2
    truncated = (torch.rand(*shape, 1) < 0.2) & ~terminated
    after = {
        "observation": torch.randn(*shape, OBS, dtype=dtype),
        "reward": torch.randn(*shape, 1, dtype=dtype),
        "terminated": terminated,
        "truncated": truncated,
        "done": terminated | truncated,
    }
    now = {
        "observation": torch.randn(*shape, OBS, dtype=dtype),
        "action": torch.rand(*shape, ACT, dtype=dtype) * 2 - 1,
    }
    return TensorDict({**now, "next": after}, batch_size=shape)


# ---- comparisons --------------------------------------------------------------------------------


def move_targets(loss) -> None:
    """Give the targets values of their own."""
    target = loss._modules.get("target_qvalue_network_params")
    if target is not None:
        for value in target.values(True, True):
            value.data.add_(0.3 * torch.randn_like(value))


def seeded(loss, batch, seed=1):
    """The loss's output on a copy of the batch, and that copy."""
    batch = batch.clone()
    torch.manual_seed(seed)
    return loss(batch), batch


def gradients(loss, out) -> dict[str, torch.Tensor | None]:
    """Gradient of the summed loss terms, by parameter name."""
    loss.zero_grad(set_to_none=True)
    sum(value.sum() for name, value in out.items() if name.startswith("loss_")).backward()
    return {name: param.grad for name, param in loss.named_parameters()}


def twins(make_networks, **options):
    """TorchRL's loss and ours over networks of the same architecture and values."""
    theirs = TorchRLSACLoss(*make_networks(), **options)
    ours = SACLoss(*make_networks(), **options)
    move_targets(theirs)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def assert_equal_losses(theirs, ours, batch, terms=TERMS) -> None:
    """Same terms, priorities and gradients on the same noise."""
    expected, batch_a = seeded(theirs, batch)
    actual, batch_b = seeded(ours, batch)
    for name in terms:
        torch.testing.assert_close(actual[name], expected[name], atol=1e-5, rtol=1e-5, msg=name)
    key = theirs.tensor_keys.priority
    priority = as_written_by(theirs, batch_b.get(key))
    torch.testing.assert_close(priority, batch_a.get(key), atol=1e-5, rtol=1e-5)
    written, known = batch_a.keys(True, True), set(batch.keys(True, True))
    assert key in written
    assert set(batch_b.keys(True, True)) == set(written)
    for name in set(written) - known - {key}:
        torch.testing.assert_close(batch_b.get(name), batch_a.get(name), msg=str(name))
    wanted, found = gradients(theirs, expected), gradients(ours, actual)
    assert wanted.keys() == found.keys()
    for name, grad in wanted.items():
        if grad is None or found[name] is None:
            assert all(x is None or not x.any() for x in (grad, found[name])), name
        else:
            torch.testing.assert_close(found[name], grad, atol=1e-5, rtol=1e-5, msg=name)
