"""Mirror symmetry of a task: rollouts with their mirror images, and the mirror loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor
from torchrl.envs import EnvBase

from torchrl_elegant.algorithms.add_ons import AddOn
from torchrl_elegant.config.options import check, check_options, option
from torchrl_elegant.functional import action_mask_of
from torchrl_elegant.modules import GaussianActor, observation_shapes
from torchrl_elegant.modules.build import only_action
from torchrl_elegant.objectives.on_policy.base import OnPolicyLoss

Shapes: TypeAlias = Mapping[NestedKey, Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class SymmetryConfig:
    """Mirror symmetry of a task, as an algorithm uses it.

    A mirror image swaps numbers and turns their signs. It is given by signed places: ``2, 1, -3``
    stands for :math:`(x_2, x_1, -x_3)`.

    >>> SymmetryConfig(observation=(1, -2, -3), action=(-1,)).augment
    True
    """

    observation: tuple[int, ...] = option(
        (), "signed places of the mirrored observation, as 2,1,-3, over all that the actor reads"
    )
    action: tuple[int, ...] = option((), "signed places of the mirrored action")
    state: tuple[int, ...] | None = option(
        None, "the same for what the critic alone reads; none: it reads no more than the actor"
    )
    augment: bool = option(True, "learn from mirror images of all rollouts, too")
    weight: float = option(
        0.0,
        "weight of the mirror loss, the distance of mirrored actions and those at mirror images",
        low=0,
    )

    def __post_init__(self) -> None:
        check_options(self)
        for name in ("observation", "action", "state"):
            places = getattr(self, name)
            if places is not None:
                _check_places(name, places)
        used, way_out = self.augment or self.weight > 0, "set weight=0.1"
        check(used, "augment", "be true with weight=0", False, way_out)

    def build(self, env: EnvBase, loss: OnPolicyLoss) -> Symmetry:
        """Make the add-on over the networks of ``loss``."""
        key, spec = only_action(env, algorithm="symmetry")
        mask = action_mask_of(env)
        must = "be none where actions are masked: a mask has no mirror image"
        check(mask is None, "symmetry", must, mask)
        counted = not spec.dtype.is_floating_point
        way_out = "choose one-hot actions, and places without signs"
        plain = spec.ndim == 1 and not (counted and min(self.action) < 0)
        check(plain, "symmetry.action", f"suit `{type(spec).__name__}`", self.action, way_out)
        mirrors = [Mirror({key: spec.shape}, self.action, name="symmetry.action")]
        seen = loss.actor_network.in_keys
        more = [key for key in loss.critic_network.in_keys if key not in seen]
        keys = {"observation": seen} | ({"state": more} if more else {})
        must = f"be none, as the critic reads no more than the actor ({seen})"
        check(bool(more) or self.state is None, "symmetry.state", must, self.state)
        must = f"be given, as the critic alone reads {more}"
        check(not more or self.state is not None, "symmetry.state", must, self.state)
        for name in keys:
            shapes = observation_shapes(env, keys[name])
            mirrors.append(Mirror(shapes, getattr(self, name), name=f"symmetry.{name}"))
        gaussian = isinstance(loss.actor_network, GaussianActor)
        must = "be 0 for an actor whose actions have no mean"
        check(gaussian or not self.weight, "symmetry.weight", must, self.weight)
        return Symmetry(loss, mirrors, augment=self.augment, weight=self.weight)


def _check_places(name: str, places: Sequence[int]) -> None:
    whole = sorted(map(abs, places)) == list(range(1, len(places) + 1)) and len(places) > 0
    must = "hold each of the places 1, 2, ... once, with a sign where a number changes its own"
    check(whole, name, must, places, "list the mirror image's numbers in order, as 2,1,-3")


class Mirror:
    """Mirror image of some entries, joined in their order, by signed places.

    >>> mirror = Mirror({"arm": (2,), "goal": (1,)}, (2, 1, -3))
    >>> [x.tolist() for x in mirror([torch.tensor([1.0, 2.0]), torch.tensor([3.0])])]
    [[2.0, 1.0], [-3.0]]
    """

    def __init__(self, shapes: Shapes, places: Sequence[int], *, name: str = "places") -> None:
        flat = all(len(shape) == 1 for shape in shapes.values())
        check(flat, name, "be of vectors", dict(shapes), "flatten the entries in a wrapper")
        self.keys, self._sizes = list(shapes), [shape[0] for shape in shapes.values()]
        fits = len(places) == sum(self._sizes)
        check(fits, name, f"have {sum(self._sizes)} places, for {self.keys}", places)
        self._index = torch.tensor([abs(place) - 1 for place in places])
        self._sign = torch.tensor([1 if place > 0 else -1 for place in places])

    def __call__(self, entries: Sequence[Tensor]) -> list[Tensor]:
        """The mirror images of ``entries``, each ``[*B, n]``."""
        first = entries[0]
        if self._index.device != first.device:
            self._index, self._sign = self._index.to(first.device), self._sign.to(first.device)
        joined = first if len(entries) == 1 else torch.cat(tuple(entries), -1)
        image = joined.index_select(-1, self._index) * self._sign.to(joined.dtype)
        return list(image.split(self._sizes, -1))

    def write(self, rows: TensorDictBase) -> None:
        """Put mirror images in the place of the entries of ``rows``."""
        images = self([rows.get(key) for key in self.keys])
        for key, image in zip(self.keys, images, strict=True):
            rows.set(key, image)


class Symmetry(AddOn):
    r"""Symmetry in PPO (Mittal et al. 2024, arXiv:2403.04359): augmentation and mirror loss.

    With the mirror images :math:`\tilde s, \tilde a` of states and actions:

    - augmentation: :math:`(\tilde s, \tilde a, r, \tilde s')` is learned from, too. Its
      log-probability is that of :math:`a` in :math:`s`, by which it was drawn. Rollouts are
      mirrored before they are scaled, so that the scales are symmetric;
    - mirror loss: :math:`L = w \, \mathrm{E} \| \mu(\tilde s) - \tilde\mu(s) \|^2`, averaged over
      the action's dimensions; :math:`\tilde\mu(s)` is a constant.

    Args:
        loss: its actor gets the gradients.
        mirrors: that of the action, that of the actor's entries, and that of entries which the
            critic alone reads. No entry has two.
        augment: whether rollouts are doubled.
        weight: w.
    """

    name = "symmetry"

    def __init__(
        self, loss: OnPolicyLoss, mirrors: Sequence[Mirror], *, augment: bool, weight: float
    ) -> None:
        self.loss, self.weight, self.augment = loss, weight, augment
        self._mirrors, (self._action, self._seen) = tuple(mirrors), mirrors[:2]

    @property
    def metric_names(self) -> Sequence[str]:
        return ("loss_symmetry",) if self.weight else ()

    def show_rollout(self, rollout: TensorDictBase) -> TensorDictBase:
        if not self.augment:
            return rollout
        image = rollout.clone(recurse=False)
        after = image.get("next").clone(recurse=False)
        action, *seen = self._mirrors
        for mirror in seen:
            mirror.write(after)
        for mirror in (action, *seen):
            mirror.write(image)
        return torch.stack([rollout, image.set("next", after)])  # what was collected comes first

    def backward(self, batch: TensorDictBase, *, actor_updated: bool) -> dict[str, Tensor]:
        if not self.weight:
            return {}
        actor = self.loss.actor_network
        seen = [batch.get(key) for key in actor.in_keys]
        with torch.no_grad():
            (wanted,) = self._action([actor.output(seen)])
        apart = actor.output(self._seen(seen)) - wanted
        loss = self.weight * apart.square().mean()
        loss.backward()
        return {"loss_symmetry": loss.detach()}
