"""AgileRL's PPO, whose members train one after another; what it saved is loaded by hand.

Its loop has no option to go on. Each member's file is loaded, as its documentation shows; a member
whose file cannot be read begins anew. Here 16 steps of an environment are a unit.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
import gymnasium as gym
import torch
from agilerl.algorithms import PPO
from agilerl.hpo.mutation import Mutations
from agilerl.hpo.tournament import TournamentSelection
from agilerl.training.train_on_policy import train_on_policy
from agilerl.utils.utils import make_vect_envs

from contenders.kills import task

FOLDER = Path(sys.argv[1]).resolve()
STEPS_OF_UNIT = 16


class Diary(gym.Wrapper):
    def __init__(self, env):
        super().__init__(env)
        self.steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps % STEPS_OF_UNIT == 0:
            task.note_unit(FOLDER)
        return self.env.step(action)


def main() -> None:
    torch.set_num_threads(1)
    envs = make_vect_envs(
        make_env=lambda: Diary(gym.make("CartPole-v1")), num_envs=1, should_async_vector=False
    )
    quantum = 2 * task.UNITS * STEPS_OF_UNIT
    members, unreadable = [], 0
    for index in range(task.MEMBERS):
        path = FOLDER / f"member_{index}.pt"
        try:
            members.append(PPO.load(str(path)))
        except Exception as error:  # whatever a torn file brings about
            unreadable += path.exists()
            if path.exists():
                print(f"{path.name}: {type(error).__name__}: {error}", file=sys.stderr)
            spaces = envs.single_observation_space, envs.single_action_space
            net = {"encoder_config": {"hidden_size": [16]}}
            members.append(PPO(*spaces, index=index, learn_step=quantum // 2, net_config=net))
    with (FOLDER / "unreadable").open("a") as file:
        file.write(f"{unreadable}\n")
    members, _ = train_on_policy(
        env=envs,
        env_name="CartPole-v1",
        algo="PPO",
        pop=members,
        max_steps=task.STEPS * quantum,
        evo_steps=quantum,
        eval_steps=10,
        selection_strategy=TournamentSelection(2, True, task.MEMBERS),
        mutation=Mutations(
            no_mutation=0.5, architecture=0, new_layer_prob=0, parameters=0, activation=0, rl_hp=0.5
        ),
        checkpoint=quantum,
        checkpoint_path=str(FOLDER / "member.pt"),
        overwrite_checkpoints=True,
        verbose=False,
    )
    task.finish(FOLDER, [member.metrics.steps // quantum for member in members])


if __name__ == "__main__":
    main()
