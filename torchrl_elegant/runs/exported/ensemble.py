"""Actor of several actors, which act together as one policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor, nn

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.modules import RecurrentActor

#: Form of the actions: numbers, one hot (of one choice or several), or indices.
Form = Literal["continuous", "one_hot", "categorical"]


class EnsembleActor(TensorDictModuleBase):
    """Several actors of one environment; each of them decides, and all decisions count alike.

    Continuous actions are averaged. Of discrete ones, that of most actors is taken; of equals, that
    of the first.

    Args:
        members: actors by the names of their builders, with what each builder takes.
        form: form of the actions.

    >>> from tensordict import TensorDict
    >>> from tensordict.nn import TensorDictModule
    >>> halves = [
    ...     TensorDictModule(lambda x, k=k: k * x, in_keys=["observation"], out_keys=["action"])
    ...     for k in (1.0, 2.0)
    ... ]
    >>> actor = EnsembleActor([("Half", {}, half) for half in halves], form="continuous")
    >>> actor(TensorDict({"observation": torch.ones(1)}))["action"]
    tensor([1.5000])
    """

    def __init__(
        self,
        members: Sequence[tuple[str, Mapping[str, Any], TensorDictModuleBase]],
        *,
        form: Form,
    ) -> None:
        super().__init__()
        for name, _, actor in members:
            if any(isinstance(part, RecurrentActor) for part in actor.modules()):
                raise UsageError(
                    f"`members` must have no memory, got {name}, whose state is that of its own "
                    "episodes; take the best of them alone"
                )
        self.actors = nn.ModuleList(actor for _, _, actor in members)
        self.form = form
        self._specs = [{"builder": name, "spec": dict(spec)} for name, spec, _ in members]
        self.in_keys = list(dict.fromkeys(key for _, _, one in members for key in one.in_keys))
        self.out_keys = ["action"]

    @staticmethod
    def takes(actor: TensorDictModuleBase) -> bool:
        """True for an actor of one agent without a memory."""
        return "action" in actor.out_keys and not isinstance(actor, RecurrentActor)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        actions = [actor(tensordict.copy()).get(self._key(actor)) for actor in self.actors]
        return tensordict.set("action", self._joined(torch.stack(actions)))

    def spec_dict(self) -> dict[str, Any]:
        """Plain data from which ``from_spec`` builds the same architecture."""
        return {"members": self._specs, "form": self.form}

    @classmethod
    def from_spec(
        cls,
        builders: Mapping[str, Callable[..., TensorDictModuleBase]],
        *,
        members: Sequence[Mapping[str, Any]],
        form: Form,
    ) -> EnsembleActor:
        """Build what ``spec_dict`` describes."""
        made = [
            (one["builder"], one["spec"], builders[one["builder"]](**one["spec"]))
            for one in members
        ]
        return cls(made, form=form)

    @staticmethod
    def _key(actor: Any) -> Any:
        return "action" if "action" in actor.out_keys else actor.out_keys[0]

    def _joined(self, actions: Tensor) -> Tensor:
        if self.form == "continuous":
            return actions.mean(0)
        same = actions.unsqueeze(0) == actions.unsqueeze(1)
        if self.form == "one_hot":
            same = same.all(-1, keepdim=True)
        chosen = same.sum(0).argmax(0, keepdim=True)
        return actions.gather(0, chosen.expand_as(actions[:1])).squeeze(0)
