"""What would we miss least? Eviction policies for runs of a prefix tree; usable without the rest of this project."""

from eviction.lru import LruPolicy
from eviction.policy import WHOLE_RUN, EvictionPolicy, PolicyFactory, RequestFacts

__all__ = ["WHOLE_RUN", "EvictionPolicy", "LruPolicy", "PolicyFactory", "RequestFacts"]
