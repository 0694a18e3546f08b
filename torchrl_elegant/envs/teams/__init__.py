"""Environments of several agents."""

from torchrl_elegant.envs.teams.vmas import VmasScenarios, VmasTeams

__all__ = ["VmasScenarios", "VmasTeams"]
