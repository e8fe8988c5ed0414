"""What would we miss least? Eviction policies for runs of a prefix tree; usable without the rest of this project."""

from eviction.errors import UnknownPolicyError
from eviction.fifo import FifoPolicy
from eviction.lru import LruPolicy
from eviction.optimal import NEVER, NextUse, OptimalPolicy
from eviction.policy import WHOLE_RUN, EvictionPolicy, RequestFacts
from eviction.registry import make_policy, policy_names

__all__ = [
    "NEVER",
    "WHOLE_RUN",
    "EvictionPolicy",
    "FifoPolicy",
    "LruPolicy",
    "NextUse",
    "OptimalPolicy",
    "RequestFacts",
    "UnknownPolicyError",
    "make_policy",
    "policy_names",
]
