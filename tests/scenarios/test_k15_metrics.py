"""K15: metrics tell a lie."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kvstore import KVStore, OutOfPages, Prompt, StoreStats
from tests.support.engine import Engine, Walk
from transfer import VirtualPagePool

A = list(range(1, 9))
_MONOTONE = (
    "requests",
    "queried_tokens",
    "hit_tokens",
    "resumed_tokens",
    "published_blocks",
    "duplicate_blocks",
    "out_of_pages",
    "ended_unreleased",
)


def _check_snapshot(stats: StoreStats, before: StoreStats | None = None) -> None:
    assert stats.hit_tokens <= stats.queried_tokens
    assert stats.free_pages + stats.cached_pages + stats.reserved_pages == stats.page_count
    assert 0 <= stats.evictable_pages <= stats.cached_pages
    assert 0.0 <= stats.token_hit_rate <= 1.0
    if before is not None:
        assert all(getattr(before, name) <= getattr(stats, name) for name in _MONOTONE)
        assert all(count <= stats.evicted_blocks[reason] for reason, count in before.evicted_blocks.items())


def test_b120_what_a_preempted_request_finds_again_is_no_hit() -> None:
    """B120: 100 random prompts in a pool that forces preemption and resume: no hits, resumed tokens apart."""
    engine = Engine(page_count=12)
    choose = random.Random(120)
    waiting = [[choose.randrange(1 << 30) for _ in range(choose.randint(4, 12))] for _ in range(100)]
    running, parked, preemptions = [], [], 0
    while waiting or running or parked:
        if waiting and len(running) < 3:
            running.append(engine.begin(waiting.pop()))
        elif parked and len(running) < 3:
            request = parked.pop(0)
            request.resume()
            running.append(request)
        request = choose.choice(running)
        try:
            request.prefill(chunk=4)
            request.decode([choose.randrange(1 << 30)])
        except OutOfPages:
            running.remove(request)
            parked.append(request)
            request.park()
            preemptions += 1
        if request in running and len(request.tokens) > 20:
            running.remove(request)
            request.release()
        engine.check()
    stats = engine.store.stats()
    assert preemptions > 10
    assert (stats.requests, stats.hit_tokens, stats.token_hit_rate) == (100, 0, 0.0)
    assert stats.resumed_tokens > 0
    engine.check_quiet()


def test_b121_a_waiting_request_counts_once_when_it_is_admitted() -> None:
    """B121: a request with 2 cached pages is refused 5 times, then admitted: +1 request, +8 hit tokens, once."""
    engine = Engine(page_count=4)
    engine.serve(A)
    before = engine.store.stats()
    request = engine.begin([*A, 9])
    others = engine.grab(2)
    for refused in range(1, 6):
        with pytest.raises(OutOfPages):
            request.reserve()
        stats = engine.store.stats()
        assert stats.out_of_pages == before.out_of_pages + refused
        assert (stats.requests, stats.hit_tokens) == (before.requests + 1, before.hit_tokens)  # the other one
    others.abandon()
    request.prefill()
    request.decode([10, 11])
    request.release()
    stats = engine.store.stats()
    assert stats.requests == before.requests + 2
    assert stats.queried_tokens == before.queried_tokens + 9
    assert stats.hit_tokens == before.hit_tokens + 8
    engine.check_quiet()


def test_b121_beginning_again_after_each_refusal_counts_once_as_well() -> None:
    """B121: an engine that abandons and begins again on each step counts no query and no hit until it is admitted."""
    engine = Engine(page_count=4)
    engine.serve(A)
    before = engine.store.stats()
    others = engine.grab(2)
    for _ in range(5):
        with pytest.raises(OutOfPages), engine.begin([*A, 9]) as request:
            request.prefill()
    others.abandon()
    engine.serve([*A, 9])
    stats = engine.store.stats()
    assert stats.queried_tokens == before.queried_tokens + 9
    assert stats.hit_tokens == before.hit_tokens + 8
    engine.check_quiet()


def test_b121_a_request_parked_before_it_was_admitted_counts_its_hit_once() -> None:
    """B120, B121: what begin found is the hit, however often the request waited parked; the rest counts as resumed."""
    engine = Engine(page_count=4)
    engine.serve(A)
    before = engine.store.stats()
    request = engine.begin([*A, 9])
    for _ in range(3):
        request.park()
        request.resume()
    request.prefill()
    request.release()
    stats = engine.store.stats()
    assert stats.hit_tokens == before.hit_tokens + 8
    assert stats.queried_tokens == before.queried_tokens + 9
    engine.check_quiet()


def test_b121_hits_are_tokens_of_the_prompt() -> None:
    """B121: a request that learns tokens before it is admitted has no more hits than its prompt could have."""
    engine = Engine(page_count=8)
    engine.serve(range(16))
    request = engine.begin(range(6))
    request.append(range(6, 16))
    request.park()
    assert request.resume() == 12
    request.prefill()
    request.release()
    _check_snapshot(engine.store.stats())
    assert engine.store.stats().hit_tokens == 4


def test_b121_reading_is_counted_for_those_who_read() -> None:
    """B121: a request that may not read queries nothing; one that may not write is counted like any other."""
    engine = Engine(page_count=8)
    engine.serve(A)
    before = engine.store.stats()
    with engine.begin([*A, 9], skip_read=True) as request:
        request.prefill()
    with engine.begin([*A, 9], skip_write=True) as request:
        request.prefill()
    stats = engine.store.stats()
    assert stats.requests == before.requests + 2
    assert stats.queried_tokens == before.queried_tokens + 9
    assert stats.hit_tokens == before.hit_tokens + 8
    engine.check_quiet()


@pytest.mark.parametrize("seed", range(3))
def test_b124_numbers_rise_and_add_up_at_every_step(seed: int) -> None:
    """B124: counters never fall, hits <= queries and the pages add up in every snapshot."""
    engine = Engine(page_count=10)
    walk = Walk(engine, seed=seed)
    before = engine.store.stats()
    for _ in range(500):
        walk.step()
        stats = engine.store.stats()
        _check_snapshot(stats, before)
        before = stats
    walk.quiet()


@contextmanager
def _switching_often() -> Iterator[None]:
    was = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(was)


def test_b124_stats_while_threads_work() -> None:
    """B124: 8 threads work in many namespaces' worth of prompts, 2 threads take snapshots all the time."""
    store = KVStore(VirtualPagePool(page_count=64, block_tokens=4))
    working = threading.Event()
    working.set()
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        choose = random.Random(seed)
        for _ in range(150):
            prompt = Prompt.of_tokens([choose.randrange(3) for _ in range(choose.randint(1, 30))])
            with store.begin(prompt) as sequence:
                sequence.reserve(through=prompt.token_count)
                sequence.commit(through=prompt.token_count)

    def watch() -> None:
        before = store.stats()
        while working.is_set():
            stats = store.stats()
            _check_snapshot(stats, before)
            before = stats

    def run(task: object, *given: int) -> threading.Thread:
        def guarded() -> None:
            try:
                task(*given)  # type: ignore[operator]
            except BaseException as failure:
                failures.append(failure)

        thread = threading.Thread(target=guarded)
        thread.start()
        return thread

    with _switching_often():
        watchers = [run(watch) for _ in range(2)]
        workers = [run(work, seed) for seed in range(8)]
        for thread in workers:
            thread.join()
        working.clear()
        for thread in watchers:
            thread.join()
    assert not failures
    assert store.stats().requests == 8 * 150
    store.audit()
