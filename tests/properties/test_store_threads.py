"""Sixteen threads do to one store what engines do, and what operators do, switching as often as the interpreter can."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from eviction import LruPolicy
from kvstore import (
    BlockFormat,
    KVStore,
    Namespace,
    OutOfPages,
    Prompt,
    ResetRefused,
    Sequence,
    SequenceLost,
    StoreStats,
)
from tests.support.stamps import Content, GarblingAllocator, StampedPages, stamped_pages

_THREADS = 16
_STEPS = 400
_TOGETHER = 3  #: requests of one thread
_BLOCK_TOKENS = 4
_JOIN_SECONDS = 120  #: a bound, not a wait: threads that deadlock fail the test
_COUNTERS = ("requests", "queried_tokens", "hit_tokens", "resumed_tokens", "published_blocks", "out_of_pages")


@pytest.fixture
def impatient() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@dataclass(slots=True)
class Request:
    sequence: Sequence
    content: Content
    parked: bool = False


class Engine:
    """One thread's requests, a few at a time."""

    def __init__(self, store: KVStore, pages: StampedPages, spaces: list[Namespace], seed: int) -> None:
        self.store = store
        self.pages = pages
        self.spaces = spaces
        self.chance = random.Random(seed)
        self.running: list[Request] = []
        self.failure: BaseException | None = None
        self.before = store.stats()

    def run(self, start: threading.Barrier) -> None:
        try:
            start.wait()
            for _ in range(_STEPS):
                self.turn()
            while self.running:
                self.end()
        except BaseException as error:
            self.failure = error

    def turn(self) -> None:
        self.operate()
        if len(self.running) < _TOGETHER:
            self.begin()
        request = self.running[0]
        try:
            self.step(request)
        except SequenceLost:
            self.end()
            return
        self.running.append(self.running.pop(0))
        if self.chance.random() < 0.4:
            self.end()

    def begin(self) -> None:
        chance, space = self.chance, self.chance.choice(self.spaces)
        head = [chance.randrange(3)] * (4 * chance.randrange(4))
        tokens = head + [chance.randrange(2) for _ in range(chance.randint(1, 9))]
        content = Content(space.digest, list(tokens))
        sequence = self.store.begin(Prompt.of_tokens(tokens), namespace=space, skip_read=chance.random() < 0.1)
        assert sequence.cached_tokens < len(tokens)
        self.check(sequence, content)
        self.running.append(Request(sequence, content))

    def step(self, request: Request) -> None:
        sequence, content, chance = request.sequence, request.content, self.chance
        if request.parked:
            sequence.resume()
            request.parked = False
            self.check(sequence, content)
        try:
            sequence.reserve(through=len(content.tokens) + chance.randrange(6))
        except OutOfPages:
            sequence.park()
            request.parked = True
            return
        shared, end = sequence.committed_tokens // _BLOCK_TOKENS, len(content.tokens) // _BLOCK_TOKENS
        self.pages.write(sequence.page_table, content, start=shared, end=max(shared, end))
        sequence.commit(through=len(content.tokens), fold=chance.random() < 0.7)
        self.check(sequence, content)
        more = [chance.randrange(3) for _ in range(chance.randrange(5))]
        sequence.append(more)
        content.tokens += more

    def end(self) -> None:
        """In one of the ways in which a request may end; most of them twice."""
        sequence = self.running.pop(0).sequence
        match self.chance.randrange(6):
            case 0:
                return  # dropped: the collector finds it
            case 1:
                with contextlib.suppress(KeyError), sequence:
                    raise KeyError
            case 2:
                sequence.abandon()
            case _:
                sequence.release()
        sequence.abandon()
        sequence.release()

    def check(self, sequence: Sequence, content: Content) -> None:
        self.pages.check(sequence.page_table, content, end=sequence.committed_tokens // _BLOCK_TOKENS)

    def operate(self) -> None:
        prompt = Prompt.of_tokens([self.chance.randrange(3)] * self.chance.randint(1, 16))
        match self.chance.randrange(40):
            case 0:
                with contextlib.suppress(ResetRefused):
                    self.store.reset(force=self.chance.random() < 0.3)
            case 1 | 2:
                self.store.audit()
            case 3 | 4 | 5:
                assert self.store.explain(prompt, namespace=self.spaces[0]).spans
            case 6 | 7 | 8:
                names = self.store.block_names(prompt, namespace=self.spaces[0])
                assert len(names) == prompt.token_count // _BLOCK_TOKENS
            case 9 | 10 | 11:
                assert 0 <= self.store.peek(prompt, namespace=self.spaces[1]) <= prompt.token_count
            case _:
                stats = self.store.stats()
                _check_snapshot(stats, self.before)
                self.before = stats


def _check_snapshot(stats: StoreStats, before: StoreStats) -> None:
    assert stats.free_pages + stats.cached_pages + stats.reserved_pages == stats.page_count
    assert min(stats.free_pages, stats.cached_pages, stats.reserved_pages, stats.running) >= 0
    assert 0 <= stats.evictable_pages <= stats.cached_pages
    assert stats.published_blocks - sum(stats.evicted_blocks.values()) == stats.cached_pages
    assert stats.hit_tokens <= stats.queried_tokens
    assert all(getattr(stats, name) >= getattr(before, name) for name in _COUNTERS)


@pytest.mark.usefixtures("impatient")
def test_nothing_breaks_when_every_method_runs_at_once() -> None:
    pages = stamped_pages(page_count=64, block_tokens=_BLOCK_TOKENS)
    blocks = BlockFormat.of_tokens(_BLOCK_TOKENS)
    spaces = [Namespace(model="m", format=blocks), Namespace(model="m", format=blocks, adapter="a")]
    allocator = GarblingAllocator(pages)
    store = KVStore(pages.pool, policy=LruPolicy(), allocator=allocator, retained_page_count_max=56)
    engines = [Engine(store, pages, spaces, seed) for seed in range(_THREADS)]
    start = threading.Barrier(_THREADS)
    threads = [threading.Thread(target=engine.run, args=(start,), daemon=True) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_JOIN_SECONDS)
    assert not any(thread.is_alive() for thread in threads), "deadlock"
    for engine in engines:
        if engine.failure is not None:
            raise engine.failure

    store.audit()
    stats = store.stats()
    assert (stats.running, stats.reserved_pages) == (0, 0)
    assert stats.free_pages + stats.cached_pages == stats.page_count
    assert len(allocator.out) == stats.cached_pages
    assert stats.hit_tokens > 0 < stats.duplicate_blocks, "the threads never met"
    assert stats.out_of_pages > 0 < stats.evicted_blocks["capacity"], "there was no pressure"
    assert stats.ended_unreleased > 0 < stats.resumed_tokens
