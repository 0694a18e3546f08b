"""Environments of several agents."""

from torchrl_elegant.envs.teams.drawing import Drawable
from torchrl_elegant.envs.teams.pettingzoo import PettingZooTasks, PettingZooTeams
from torchrl_elegant.envs.teams.vmas import VmasScenarios, VmasTeams

__all__ = ["Drawable", "PettingZooTasks", "PettingZooTeams", "VmasScenarios", "VmasTeams"]
