"""One actor in two losses."""

from __future__ import annotations

from tensordict import TensorDict
from torchrl.objectives import LossModule


def share_actor(base_loss: LossModule, loss: LossModule) -> None:
    """Make ``loss`` hold the parameters of the actor that ``base_loss`` trains."""
    params = base_loss._modules.get("actor_network_params")
    if params is None:  # TorchRL's ``functional=False``: the network holds them itself
        params = TensorDict.from_module(base_loss.actor_network, as_module=True)
    # Where there is such an object it is the same: casts, moves and copies reach both.
    loss.actor_network_params = params
