"""A policy that behaves like the one inside it and keeps a record of what it was asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, TypeVar

from eviction import EvictionPolicy, RequestFacts

__all__ = ["WatchedPolicy"]

K = TypeVar("K", bound=Hashable)


class WatchedPolicy(Generic[K]):
    """Counts calls and steps, and keeps what each request was when it ended."""

    def __init__(self, inner: EvictionPolicy[K]) -> None:
        self.inner = inner
        self.name = inner.name
        self.calls: Counter[str] = Counter()  #: by method; ``steps`` are those of the walks over victims
        self.used_by: list[int | str | None] = []

    def insert(self, key: K, *, first_block: int, block_count: int, ghost_id: int) -> None:
        self.calls["insert"] += 1
        self.inner.insert(key, first_block=first_block, block_count=block_count, ghost_id=ghost_id)

    def grow(self, key: K, block_count: int) -> None:
        self.calls["grow"] += 1
        self.inner.grow(key, block_count)

    def shrink(self, key: K, block_count: int) -> None:
        self.calls["shrink"] += 1
        self.inner.shrink(key, block_count)

    def remove(self, key: K) -> None:
        self.calls["remove"] += 1
        self.inner.remove(key)

    def split(self, key: K, upper: K, upper_block_count: int, *, ghost_id: int) -> None:
        self.calls["split"] += 1
        self.inner.split(key, upper, upper_block_count, ghost_id=ghost_id)

    def can_merge(self, upper: K, key: K) -> bool:
        self.calls["can_merge"] += 1
        return self.inner.can_merge(upper, key)

    def merge(self, upper: K, key: K) -> None:
        self.calls["merge"] += 1
        self.inner.merge(upper, key)

    def offer(self, key: K) -> None:
        self.calls["offer"] += 1
        self.inner.offer(key)

    def withdraw(self, key: K) -> None:
        self.calls["withdraw"] += 1
        self.inner.withdraw(key)

    def used(self, request: RequestFacts, path: Sequence[K]) -> None:
        self.calls["used"] += 1
        self.used_by.append(request.request_id)
        self.inner.used(request, path)

    def victims(self) -> Iterator[tuple[K, int]]:
        self.calls["victims"] += 1
        for victim in self.inner.victims():
            self.calls["steps"] += 1
            yield victim

    def check_invariants(self) -> None:
        self.inner.check_invariants()
