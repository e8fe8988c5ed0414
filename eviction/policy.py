"""What an eviction policy must answer: which run would we miss least?

A prefix cache is a radix tree. Its nodes are *runs*: consecutive blocks of one prefix that share one fate.
A policy orders the runs of one tier. It sees opaque keys and numbers, never bytes, never the future.

The tree (the caller) keeps these promises, and every policy may lean on them:

* A run is offered only while it is on the *frontier*: nothing holds it and no child of it is resident in the tier.
  Only the tail of an offered run may be evicted, so an ancestor never leaves before its descendants.
* ``used`` names whole paths from the root, so an ancestor is never colder than its descendants.
* Every key is inserted before it is named elsewhere, and never named after ``remove`` or after it was the ``upper``
  of a ``merge``.
* Calls come from one thread at a time.

Admission is order, not a separate question: what is not worth keeping is the coldest thing at the moment of release,
and the store trims from the cold end. A newcomer may therefore be its own victim (this is how the optimum bypasses).
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Sequence
from typing import Protocol, TypeVar, runtime_checkable

__all__ = ["WHOLE_RUN", "EvictionPolicy", "RequestFacts"]

K = TypeVar("K", bound=Hashable)

#: As a victim's block count: all of the run is equally cold.
WHOLE_RUN = sys.maxsize


class RequestFacts(Protocol):
    """What a policy may know of a request when it ends. Read it during the call; do not keep it."""

    @property
    def request_id(self) -> int | str | None:
        """The caller's own name for the request, if it gave one."""

    @property
    def token_count(self) -> int:
        """Tokens known when the request ended, prompt and generated."""

    @property
    def matched_tokens(self) -> int:
        """Leading tokens that were found in the cache when the request began."""

    @property
    def begun_ns(self) -> int:
        """When the request began, on the store's clock."""


@runtime_checkable
class EvictionPolicy(Protocol[K]):
    """Orders the runs of one tier by how little we would miss them. Holds keys and ghosts, never bytes.

    Cost: every method is O(1) or O(log runs), ``used`` is O(runs on the path); ``victims`` that per step.
    """

    @property
    def name(self) -> str:
        """The word that selects this policy and that ``stats()`` and reports show."""

    def insert(self, key: K, *, first_block: int, block_count: int, ghost_id: int) -> None:
        """A run joined the tier, not yet offered.

        Args:
            key: the run, unknown until now.
            first_block: how many blocks lie between the root and the run.
            block_count: blocks in the run, at least 1.
            ghost_id: names the run's first block by its whole prefix; the same however runs are cut later.
        """

    def grow(self, key: K, block_count: int) -> None:
        """The run gained ``block_count`` blocks at its tail."""

    def shrink(self, key: K, block_count: int) -> None:
        """The run lost its ``block_count`` deepest blocks and keeps at least one."""

    def remove(self, key: K) -> None:
        """The run left the tier as a whole; it may be on offer until now."""

    def split(self, key: K, upper: K, upper_block_count: int, *, ghost_id: int) -> None:
        """The leading ``upper_block_count`` blocks of ``key`` became the new run ``upper``; ``key`` keeps the rest.

        ``upper`` is not offered; ``key`` stays as it was. ``ghost_id`` is the new one of ``key``; ``upper`` inherits
        the old one.
        """

    def can_merge(self, upper: K, key: K) -> bool:
        """Whether ``upper`` and its only child ``key`` are equally cold, so that one run may stand for both. Pure."""

    def merge(self, upper: K, key: K) -> None:
        """``key`` took over the blocks of ``upper`` (and its ghost id), which is gone. Inverse of ``split``."""

    def offer(self, key: K) -> None:
        """The run joined the frontier: its tail may be evicted."""

    def withdraw(self, key: K) -> None:
        """The run left the frontier. Inverse of ``offer``."""

    def used(self, request: RequestFacts, path: Sequence[K]) -> None:
        """A request ended that used these runs: a path from the root, root first. Once per request."""

    def victims(self) -> Iterator[tuple[K, int]]:
        """Offered runs, coldest first, each with how many of its deepest blocks are that cold (or ``WHOLE_RUN``).

        A lazy query: it changes no answer, and any other call ends its validity.
        """

    def check_invariants(self) -> None:
        """Recompute what is kept incrementally; raise ``AssertionError`` on a difference. O(runs)."""
