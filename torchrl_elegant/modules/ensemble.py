"""Many critics in one batched module, of values or of distributions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn

from torchrl_elegant.functional import perceptrons
from torchrl_elegant.modules.inputs import Inputs
from torchrl_elegant.modules.mlp import activation_of, check_architecture, gain_of


class EnsembleMLP(nn.Module):
    """N perceptrons of equal shape, run as batched matrix products.

    Parameters are ``weight_i`` of shape ``[N, in, out]`` and ``bias_i`` of shape ``[N, 1, out]``;
    each member has orthogonal weights of its own draw, scaled by ``hidden_gain`` or, in the last
    layer, by ``output_gain``.

    >>> import torch
    >>> net = EnsembleMLP(num_members=4, in_features=3, out_features=1, num_cells=(8,))
    >>> net(torch.zeros(5, 3)).shape
    torch.Size([4, 5, 1])
    """

    def __init__(
        self,
        *,
        num_members: int,
        in_features: int,
        out_features: int,
        num_cells: Sequence[int] = (256, 256),
        activation: str = "relu",
        hidden_gain: float | None = None,
        output_gain: float = 1.0,
    ) -> None:
        super().__init__()
        if num_members < 1:
            raise ValueError(f"`num_members` must be at least 1, got `{num_members}`")
        check_architecture(num_cells, activation)
        self.num_members = num_members
        self.activation = activation
        self._activate = activation_of(activation)
        sizes = [in_features, *num_cells, out_features]
        self._names = [f"{kind}_{i}" for i in range(len(sizes) - 1) for kind in ("weight", "bias")]
        inner = gain_of(activation, hidden_gain)
        for i, (a, b) in enumerate(pairwise(sizes)):
            gain = inner if i < len(num_cells) else output_gain
            draws = [nn.init.orthogonal_(torch.empty(b, a), gain).T for _ in range(num_members)]
            self.register_parameter(f"weight_{i}", nn.Parameter(torch.stack(draws).contiguous()))
            self.register_parameter(f"bias_{i}", nn.Parameter(torch.zeros(num_members, 1, b)))

    def forward(self, x: Tensor, members: Tensor | None = None) -> Tensor:
        """Map ``[B, in]``, shared by the members, or ``[N, B, in]`` to ``[N, B, out]``.

        With indices ``members`` only those run, in their order.
        """
        params = [getattr(self, name) for name in self._names]
        if members is not None:
            params = [param.index_select(0, members) for param in params]
        return self._run(x, params)

    def forward_frozen(self, x: Tensor, first: int | None = None) -> Tensor:
        """Run the ``first`` members, or all; gradients reach ``x`` but not the parameters."""
        return self._run(x, [getattr(self, name).detach()[:first] for name in self._names])

    def _run(self, x: Tensor, params: list[Tensor]) -> Tensor:
        layers = list(zip(params[::2], params[1::2], strict=True))
        return perceptrons(x, layers, [*[self._activate] * (len(layers) - 1), None])


class EnsembleCritic(TensorDictModuleBase):
    """Q(s, a) of N critics, read from and written to a TensorDict.

    As a TensorDict module it writes ``state_action_value`` with the members in the last dimension,
    ``[*B, N]``; with one member it is an ordinary Q network for TorchRL's losses. The losses of
    this package call ``values`` and ``frozen_values``, which have the members first. All members
    share one encoder.

    Args:
        observation: shape of each observation entry, by key; ``Inputs`` joins them.
        action_shape: shape of the action.
        num_critics: number of members.
        num_cells, activation, hidden_gain: as for ``EnsembleMLP``.
        action_key: entry of the action.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> critic = EnsembleCritic(observation={"observation": (3,)}, action_shape=(1,), num_critics=2)
    >>> data = TensorDict({"observation": torch.zeros(5, 3), "action": torch.zeros(5, 1)}, [5])
    >>> critic(data)["state_action_value"].shape
    torch.Size([5, 2])
    """

    def __init__(
        self,
        *,
        observation: Mapping[NestedKey, Sequence[int]],
        action_shape: Sequence[int],
        num_critics: int = 2,
        num_cells: Sequence[int] = (256, 256),
        activation: str = "relu",
        hidden_gain: float | None = None,
        action_key: NestedKey = "action",
    ) -> None:
        super().__init__()
        self.inputs = self._inputs(observation)
        self.in_keys = [*self.inputs.keys, action_key]
        self.out_keys = ["state_action_value"]
        self.num_critics = num_critics
        self._action_dims = len(action_shape)
        self.net = self._network(
            in_features=self.inputs.features + torch.Size(action_shape).numel(),
            num_cells=num_cells,
            activation=activation,
            hidden_gain=hidden_gain,
        )

    def _inputs(self, observation: Mapping[NestedKey, Sequence[int]]) -> Inputs:
        return Inputs(observation)

    def _network(self, **options: Any) -> EnsembleMLP:
        return EnsembleMLP(num_members=self.num_critics, out_features=1, **options)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        *observation, action = (tensordict.get(key) for key in self.in_keys)
        return tensordict.set(self.out_keys[0], self.values(observation, action).movedim(0, -1))

    def values(
        self, observation: Sequence[Tensor], action: Tensor, members: Tensor | None = None
    ) -> Tensor:
        """Q of every member, ``[N, *B]``, or of those at the indices ``members``."""
        run = partial(self.net.forward, members=members)
        return self._run(run, self.inputs.parts(observation), action)

    def frozen_values(
        self, observation: Sequence[Tensor], action: Tensor, first: int | None = None
    ) -> Tensor:
        """Q of the ``first`` members, or of all; gradients reach the action but not the
        parameters."""
        run = partial(self.net.forward_frozen, first=first)
        return self._run(run, self.inputs.frozen_parts(observation), action)

    def _run(self, run: Callable[[Tensor], Tensor], seen: list[Tensor], action: Tensor) -> Tensor:
        x = self._joined(seen, action)
        if x.ndim == 2:
            return run(x).squeeze(-1)
        batch = x.shape[:-1]
        return run(x.reshape(-1, x.shape[-1])).reshape(-1, *batch)

    def _joined(self, seen: list[Tensor], action: Tensor) -> Tensor:
        """Inputs of the network, ``[*B, in]``."""
        dims = self._action_dims
        return torch.cat([*seen, action.flatten(-dims) if dims > 1 else action], -1)


class DistributionalCritic(EnsembleCritic):
    r"""``EnsembleCritic`` whose members predict how likely each of K returns is.

    With atoms :math:`z_1, \ldots, z_K` evenly spaced from ``v_min`` to ``v_max`` and a network's
    outputs :math:`l_j` (Bellemare et al. 2017, arXiv:1707.06887):

    .. math::

        p_j(s, a) &= \mathrm{softmax}_j \, l(s, a)  \\
        Q(s, a) &= \sum_j p_j(s, a) \, z_j

    ``values`` and ``frozen_values`` are the means Q. ``TD3Loss`` and ``SACLoss`` over such a critic
    learn the distributions.

    Args:
        atoms: K.
        v_min, v_max: smallest and largest return that it can predict, in units of the rewards
            that the loss is shown.
        ensemble: as for ``EnsembleCritic``.

    >>> critic = DistributionalCritic(
    ...     observation={"observation": (3,)}, action_shape=(1,), atoms=5, v_min=-1.0, v_max=1.0
    ... )
    >>> seen, action = [torch.zeros(4, 3)], torch.zeros(4, 1)
    >>> critic.logits(seen, action).shape, critic.values(seen, action).shape
    (torch.Size([2, 4, 5]), torch.Size([2, 4]))
    """

    def __init__(
        self, *, atoms: int = 101, v_min: float = -10.0, v_max: float = 10.0, **ensemble: Any
    ) -> None:
        if atoms < 2:
            raise ValueError(f"`atoms` must be at least 2, got `{atoms}`")
        if not v_min < v_max:
            raise ValueError(f"`v_min` must lie below v_max ({v_max}), got `{v_min}`")
        self._count = atoms
        super().__init__(**ensemble)
        self.v_min, self.v_max = float(v_min), float(v_max)

    def logits(
        self, observation: Sequence[Tensor], action: Tensor, members: Tensor | None = None
    ) -> Tensor:
        """Outputs of every member, ``[N, *B, K]``, or of those at the indices ``members``."""
        run = partial(self.net.forward, members=members)
        return self._outputs(run, self.inputs.parts(observation), action)

    def atoms(self, device: torch.device) -> Tensor:
        """Returns that it tells apart, ``[K]``."""
        return torch.linspace(self.v_min, self.v_max, self._count, device=device)

    def _network(self, **options: Any) -> EnsembleMLP:
        return EnsembleMLP(num_members=self.num_critics, out_features=self._count, **options)

    def _run(self, run: Callable[[Tensor], Tensor], seen: list[Tensor], action: Tensor) -> Tensor:
        return self._outputs(run, seen, action).softmax(-1) @ self.atoms(action.device)

    def _outputs(
        self, run: Callable[[Tensor], Tensor], seen: list[Tensor], action: Tensor
    ) -> Tensor:
        x = self._joined(seen, action)
        if x.ndim == 2:
            return run(x)
        out = run(x.reshape(-1, x.shape[-1]))
        return out.reshape(out.shape[0], *x.shape[:-1], self._count)
