"""Networks of teams."""

from torchrl_elegant.modules.multiagent.agents import Agents, SeparateMLP
from torchrl_elegant.modules.multiagent.groups import Group, groups_of
from torchrl_elegant.modules.multiagent.mixers import QMixer

__all__ = ["Agents", "Group", "QMixer", "SeparateMLP", "groups_of"]
