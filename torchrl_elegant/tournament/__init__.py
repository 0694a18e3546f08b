"""Tournament: population training that survives anything."""

from torchrl_elegant.tournament.options import TournamentConfig
from torchrl_elegant.tournament.orchestrator import PodsFailedError
from torchrl_elegant.tournament.run import (
    TournamentResult,
    resume_tournament,
    tournament,
)
from torchrl_elegant.tournament.space import Choice, Integer, LogUniform, Uniform
from torchrl_elegant.tournament.status import lineage, report, status

__all__ = [
    "Choice",
    "Integer",
    "LogUniform",
    "PodsFailedError",
    "TournamentConfig",
    "TournamentResult",
    "Uniform",
    "lineage",
    "report",
    "resume_tournament",
    "status",
    "tournament",
]
