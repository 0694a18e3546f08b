"""Networks of teams."""

from torchrl_elegant.modules.multiagent.mixers import QMixer

__all__ = ["QMixer"]
