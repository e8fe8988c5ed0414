"""What happened so far, in numbers, and the snapshot that ``stats()`` shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

__all__ = ["Counters", "StoreStats"]


@final
class Counters:
    """Monotone counters; only the store's methods add to them, under its lock."""

    __slots__ = (
        "duplicate_blocks",
        "ended_unreleased",
        "hit_tokens",
        "out_of_pages",
        "published_blocks",
        "queried_tokens",
        "requests",
        "resumed_tokens",
    )

    def __init__(self) -> None:
        self.requests = 0
        self.queried_tokens = 0
        self.hit_tokens = 0
        self.resumed_tokens = 0
        self.published_blocks = 0
        self.duplicate_blocks = 0
        self.out_of_pages = 0
        self.ended_unreleased = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """One consistent snapshot. Counters never fall; a request counts once, when it is admitted, not at each look-up."""

    policy: str  #: name of the eviction policy
    requests: int  #: admitted: their first reservation succeeded, or they were released
    queried_tokens: int  #: prompt tokens of admitted requests that read the cache
    hit_tokens: int  #: of these, tokens found and usable (the last token is always computed)
    resumed_tokens: int  #: tokens that a parked sequence found again; these are no hits
    published_blocks: int  #: blocks that entered the tree
    duplicate_blocks: int  #: blocks that were computed though the tree had them by the time they were committed
    out_of_pages: int  #: reservations refused
    ended_unreleased: int  #: sequences that were dropped without release and cleaned up
    evicted_blocks: Mapping[str, int]  #: by reason
    page_count: int  #: = free + cached + reserved
    free_pages: int
    cached_pages: int  #: in the tree
    evictable_pages: int  #: in the tree and unheld: what evicting everything would yield
    reserved_pages: int  #: out, not in the tree: being written, or private to a sequence
    running: int  #: sequences that have begun and not ended
    nodes: int  #: runs in the tree
    namespaces: int  #: with something cached or running

    @property
    def token_hit_rate(self) -> float:
        """Hit tokens per queried token; 0 before the first request."""
        return self.hit_tokens / self.queried_tokens if self.queried_tokens else 0.0
