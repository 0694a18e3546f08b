"""Tournament: population training that survives anything."""

from torchrl_elegant.tournament.options import TournamentConfig
from torchrl_elegant.tournament.run import (
    TournamentResult,
    resume_tournament,
    tournament,
)
from torchrl_elegant.tournament.space import Choice, Integer, LogUniform, Uniform
from torchrl_elegant.tournament.status import status

__all__ = [
    "Choice",
    "Integer",
    "LogUniform",
    "TournamentConfig",
    "TournamentResult",
    "Uniform",
    "resume_tournament",
    "status",
    "tournament",
]
