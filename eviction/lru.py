"""Least recently used: the run whose last request is longest ago goes first.

Equal, victim by victim, to a plain list of blocks in which every request touches its blocks deepest first. Every run
carries the stamp of its last use; the runs of one request share it. Runs with one stamp lie on one path, so at most
one of them is on the frontier, and stamps order the offered runs strictly. Hence

* the halves of a split share the stamp: the upper half lies next to the lower one, as its blocks did;
* runs with one stamp may merge: nothing lies between them, and nothing ever comes to lie there;
* a run that is inserted is stamped at once (it is in use), and again by ``used``. Abandoned, it stays as old as that;
  what an abandoned request only matched stays as old as it was.

The order is an ``OrderedDict`` from cold to hot: O(1), no heap. A walk from the cold end meets runs that are not on
offer: held ones, and parents whose children are colder still. Where many are pinned, every walk would pay for them
again, so the next walk sets *aside* what the last one met: out of the order, stamp kept. Use brings a run back, to
the hot end like any other. If it is offered before that (a transfer has ended, a request was abandoned, its children
are gone), it takes its old place by way of the *late* heap, which walks merge in by stamp. So a run is met in vain at
most once per use, and nothing shows outside. The upper half of a split starts aside: an ``OrderedDict`` has no way to
put it beside the lower one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, TypeVar, final

from eviction.frontier import Frontier
from eviction.policy import WHOLE_RUN, RequestFacts

__all__ = ["LruPolicy"]

K = TypeVar("K", bound=Hashable)


@final
class LruPolicy(Generic[K]):
    """Least recently used by whole requests. Every call is amortised O(1) but the late ones, which are O(log runs)."""

    __slots__ = ("_aside", "_clock", "_late", "_met", "_offered", "_order")

    name = "lru"

    def __init__(self) -> None:
        self._order: OrderedDict[K, int] = OrderedDict()  # run -> stamp, cold to hot
        self._aside: dict[K, int] = {}  # run -> stamp: the runs that are not in the order
        self._offered: set[K] = set()
        self._late: Frontier[K] = Frontier()  # the offered ones among those aside
        self._met: list[K] = []  # what the last walk met that was not on offer
        self._clock = 0

    def __repr__(self) -> str:
        runs = len(self._order) + len(self._aside)
        return f"<LruPolicy runs={runs} offered={len(self._offered)} aside={len(self._aside)}>"

    def insert(self, key: K, *, first_block: int, block_count: int, ghost_id: int) -> None:
        """The newcomer is the most recently used run."""
        del ghost_id  # forgets what left
        assert not self._knows(key), f"inserted twice: {key!r}"
        assert first_block >= 0 < block_count
        self._clock = stamp = self._clock + 1
        self._order[key] = stamp

    def grow(self, key: K, block_count: int) -> None:
        """Nothing changes: a run is as recent as it is, however long."""
        assert self._knows(key)
        assert block_count > 0

    def shrink(self, key: K, block_count: int) -> None:
        """Nothing changes: what is left is as recent as it was."""
        assert self._knows(key)
        assert block_count > 0

    def remove(self, key: K) -> None:
        """Forget the run."""
        if self._order.pop(key, None) is not None:
            self._offered.discard(key)
            return
        assert key in self._aside, f"unknown run: {key!r}"
        if key in self._offered:
            self.withdraw(key)
        del self._aside[key]

    def split(self, key: K, upper: K, upper_block_count: int, *, ghost_id: int) -> None:
        """Both halves are as recent as the whole was."""
        del ghost_id
        assert not self._knows(upper), f"inserted twice: {upper!r}"
        assert upper_block_count > 0
        self._aside[upper] = self._stamp(key)

    def can_merge(self, upper: K, key: K) -> bool:
        """Whether the same request used both last."""
        return self._stamp(upper) == self._stamp(key)

    def merge(self, upper: K, key: K) -> None:
        """Forget ``upper``: ``key`` stands where both stood."""
        assert self.can_merge(upper, key)
        assert upper not in self._offered
        self.remove(upper)

    def offer(self, key: K) -> None:
        """The run may be met by a walk; its place does not change."""
        assert key not in self._offered, f"offered twice: {key!r}"
        if key not in self._order:
            self._late.offer(key, self._stamp(key))
        self._offered.add(key)

    def withdraw(self, key: K) -> None:
        """Walks pass over the run; its place does not change."""
        assert key in self._offered, f"not on offer: {key!r}"
        self._offered.remove(key)
        if key not in self._order:
            self._late.withdraw(key)

    def used(self, request: RequestFacts, path: Sequence[K]) -> None:
        """The path becomes the most recent, its root most of all."""
        del request  # only the order of the calls counts
        self._clock = stamp = self._clock + 1
        order = self._order
        if self._aside:
            self._bring_back(path)
        for key in reversed(path):  # so that walks meet a tail before its ancestors, not many in vain before it
            assert key in order, f"unknown run: {key!r}"
            order.move_to_end(key)
            order[key] = stamp

    def victims(self) -> Iterator[tuple[K, int]]:
        """Offered runs, longest unused first, each as a whole."""
        if self._met:
            self._set_aside()
        return self._merged_walk() if self._aside else self._plain_walk()

    def check_invariants(self) -> None:
        """Each run is in one place, stamps rise towards the hot end, and no two runs on offer share one. O(runs)."""
        stamps = list(self._order.values())
        assert stamps == sorted(stamps)
        assert max(stamps, default=0) <= self._clock
        assert self._order.keys().isdisjoint(self._aside)
        assert all(self._knows(key) for key in self._offered)
        assert len({self._stamp(key) for key in self._offered}) == len(self._offered)
        late = dict(self._late.walk())
        assert late == {key: stamp for key, stamp in self._aside.items() if key in self._offered}
        self._late.check_invariants()

    def _plain_walk(self) -> Iterator[tuple[K, int]]:
        offered, met = self._offered, self._met
        for key in self._order:
            if key in offered:
                yield key, WHOLE_RUN
            else:
                met.append(key)

    def _merged_walk(self) -> Iterator[tuple[K, int]]:
        offered, met = self._offered, self._met
        late_walk = self._late.walk()
        late = next(late_walk, None)
        for key, stamp in self._order.items():
            if key not in offered:
                met.append(key)
                continue
            while late is not None and late[1] < stamp:
                yield late[0], WHOLE_RUN
                late = next(late_walk, None)
            yield key, WHOLE_RUN
        while late is not None:
            yield late[0], WHOLE_RUN
            late = next(late_walk, None)

    def _set_aside(self) -> None:
        for key in self._met:
            if key in self._order and key not in self._offered:
                self._aside[key] = self._order.pop(key)
        self._met.clear()

    def _bring_back(self, path: Sequence[K]) -> None:
        for key in path:
            if key in self._aside:
                if key in self._offered:
                    self._late.withdraw(key)
                self._order[key] = self._aside.pop(key)

    def _knows(self, key: K) -> bool:
        return key in self._order or key in self._aside

    def _stamp(self, key: K) -> int:
        stamp = self._order.get(key)
        if stamp is None:
            stamp = self._aside.get(key)
        assert stamp is not None, f"unknown run: {key!r}"
        return stamp
