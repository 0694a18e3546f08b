"""Mixers: the value of a team from the values of its agents."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor, nn
from torchrl.modules.models.multiagent import Mixer


class QMixer(Mixer):
    r"""QMIX's mixer (Rashid et al. 2020, JMLR 21(178), section 4.2 and appendix C).

    .. math::

        Q_{tot} = |W_2(s)|^\top \mathrm{elu}(|W_1(s)|\, Q + b_1(s)) + V(s)

    :math:`Q` are the values of the actions that the agents have chosen. Weights are not negative,
    so that an action that is better for an agent is not worse for the team.

    The networks that make :math:`W_1` and :math:`W_2` of the state have a hidden layer, as in the
    authors' code. Those of TorchRL's ``QMixer``, in whose place this stands, have none.

    Args:
        state_shape: shape of a state.
        n_agents: agents.
        mixing_embed_dim: width of the mixed layer.
        hypernet_dim: width of the hidden layer; 0 for none, as in TorchRL.
        device: where the parameters are.

    >>> mixer = QMixer(state_shape=(5,), n_agents=3)
    >>> mixer(torch.zeros(8, 3, 1), torch.zeros(8, 5)).shape
    torch.Size([8, 1])
    """

    def __init__(
        self,
        state_shape: tuple[int, ...] | torch.Size,
        *,
        n_agents: int,
        mixing_embed_dim: int = 32,
        hypernet_dim: int = 64,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(
            n_agents=n_agents, needs_state=True, state_shape=state_shape, device=device
        )
        sizes = {"n_agents": (n_agents, 1), "mixing_embed_dim": (mixing_embed_dim, 1)}
        for name, (size, least) in (sizes | {"hypernet_dim": (hypernet_dim, 0)}).items():
            if size < least:
                raise ValueError(f"`{name}` must be at least {least}, got `{size}`")
        self.embed_dim, self.state_dim = mixing_embed_dim, prod(state_shape)

        def made(out: int, hidden: int) -> nn.Module:
            if hidden == 0:
                return nn.Linear(self.state_dim, out, device=device)
            first, last = (
                nn.Linear(self.state_dim, hidden, device=device),
                nn.Linear(hidden, out, device=device),
            )
            return nn.Sequential(first, nn.ReLU(), last)

        self.hyper_w_1 = made(mixing_embed_dim * n_agents, hypernet_dim)
        self.hyper_w_final = made(mixing_embed_dim, hypernet_dim)
        self.hyper_b_1 = made(mixing_embed_dim, 0)
        self.V = made(1, mixing_embed_dim)

    def mix(self, chosen_action_value: Tensor, state: Tensor) -> Tensor:
        """The team's value ``[*B, 1]`` from those of the agents ``[*B, n_agents, 1]``."""
        rows = chosen_action_value.shape[:-2]
        state = state.reshape(*rows, self.state_dim)
        first = self.hyper_w_1(state).abs().view(*rows, self.n_agents, self.embed_dim)
        hidden = (chosen_action_value * first).sum(-2) + self.hyper_b_1(state)
        weighted = nn.functional.elu(hidden) * self.hyper_w_final(state).abs()
        return weighted.sum(-1, keepdim=True) + self.V(state)
