"""Populations: learners of equal shape whose updates are computed together."""

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.trainers.population.members import Members
from torchrl_elegant.trainers.population.off_policy import OffPolicyMembers
from torchrl_elegant.trainers.population.on_policy import OnPolicyMembers

__all__ = ["MEMBERS", "Members", "OffPolicyMembers", "OnPolicyMembers", "members_class"]

#: Members of each family of algorithms.
MEMBERS: dict[str, type[Members]] = {"off_policy": OffPolicyMembers, "on_policy": OnPolicyMembers}


def members_class(family: str) -> type[Members]:
    """The class of members of a family; UsageError where it has none.

    >>> members_class("on_policy").__name__
    'OnPolicyMembers'
    """
    if family not in MEMBERS:
        raise UsageError(
            f"`algorithm` must be of the families {', '.join(MEMBERS)} in a vectorized population, "
            f"got one of {family}"
        )
    return MEMBERS[family]
