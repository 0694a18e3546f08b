"""A loss and an algorithm of your own: SAC that also keeps its actions small.

Run it: ``python examples/own_loss.py``, or from the command line by its name:
``torchrl-elegant train algorithm=examples.own_loss:calm_sac calmness=0.1 total_frames=3_000``.
"""

from dataclasses import dataclass

from torchrl_elegant import SACConfig, train
from torchrl_elegant.algorithms import register
from torchrl_elegant.config.options import option
from torchrl_elegant.objectives import SACLoss


class CalmSACLoss(SACLoss):
    """SAC's loss, and the mean square of the actor's actions times ``calmness``."""

    def __init__(self, *args, calmness: float, **kwargs):
        super().__init__(*args, **kwargs)
        self.calmness = calmness

    @property
    def metric_names(self):
        return [*super().metric_names, "loss_calm"]

    def actor_terms(self, tensordict):
        # Terms whose names begin with loss are summed and minimized; others are logged.
        with self.actor_network_params.to_module(self.actor_network):
            action = self.actor_network(tensordict.copy())["action"]
        return super().actor_terms(tensordict) | {
            "loss_calm": self.calmness * action.square().mean()
        }


@register("calm_sac")
@dataclass(frozen=True, kw_only=True)
class CalmSACConfig(SACConfig):
    """SAC with small actions; all other options are SAC's."""

    calmness: float = option(0.1, "weight of the mean square of actions", low=0)

    def build_loss(self, actor, critic, *, action_spec):
        given = self.loss_arguments(action_spec)
        return CalmSACLoss(actor, critic, calmness=self.calmness, **given)


def main(total_frames: int = 3_000) -> float:
    """Train, and give the return of the last evaluation."""
    config = CalmSACConfig(calmness=0.1, num_cells=(64, 64), batch_size=64, warmup=500)
    return train(config, "Pendulum-v1", total_frames=total_frames, threads=1).history[-1][
        "return_mean"
    ]


if __name__ == "__main__":
    print(f"return of the last evaluation: {main():.1f}")
