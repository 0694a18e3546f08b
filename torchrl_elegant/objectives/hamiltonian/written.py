"""The gradient of the H-term, written out where its actor's is."""

from __future__ import annotations

from functools import partial

from tensordict import TensorDictBase
from torch import Tensor

from torchrl_elegant.functional import hamiltonian_slope
from torchrl_elegant.objectives.hamiltonian.loss import HamiltonianLoss
from torchrl_elegant.objectives.on_policy.written import backward_policy


def backward_hamiltonian(loss: HamiltonianLoss, slices: TensorDictBase) -> Tensor:
    """``loss_hamiltonian`` of slices ``[L, K]``, with its gradient added to the parameters already.

    Written out for the actors that ``backward_policy`` knows, by autograd for others.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> from torchrl_elegant.modules import CategoricalActor
    >>> actor = CategoricalActor(observation={"x": (1,)}, choices=2, num_cells=())
    >>> flag = torch.ones(1, 1, 1, dtype=torch.bool)
    >>> after = {"reward": torch.ones(1, 1, 1), "done": flag, "terminated": flag}
    >>> action = torch.tensor([[[1, 0]]])
    >>> slices = TensorDict({"x": torch.zeros(1, 1, 1), "action": action, "next": after}, [1, 1])
    >>> _ = backward_hamiltonian(HamiltonianLoss(actor, weight=1.0), slices)
    >>> actor.net.layers[0].bias.grad.tolist()
    [-0.5, 0.5]
    """
    if loss.reduction == "mean":
        actor, action = loss.actor_network, loss.tensor_keys.action
        rows = {key: slices.get(key).flatten(0, 1) for key in (*actor.in_keys, action)}
        written = backward_policy(actor, rows, action, partial(_gain_slope, loss, slices))
        if written is not None:
            return written
    term = loss(slices).get("loss_hamiltonian")
    term.sum().backward()
    return term.detach()


def _gain_slope(
    loss: HamiltonianLoss, slices: TensorDictBase, log_prob: Tensor
) -> tuple[Tensor, Tensor]:
    """Whose mean is minus the loss, ``[L]``, and whose mean over all steps is that one's slope."""
    real, constants = loss.constants(slices)
    energy, slope = hamiltonian_slope(log_prob.view_as(real).masked_fill(~real, 0.0), **constants)
    # A mean over slices is K times as steep as one over steps.
    steep = -loss.weight * slope.shape[1]
    return -loss.weight * energy, slope.masked_fill(~real, 0.0).mul_(steep).flatten()
