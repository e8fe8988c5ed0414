"""K23: flush, reset, weight change."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from eviction import make_policy, policy_names
from kvstore import BlockFormat, EvictionReason, InvalidRequest, Namespace, ResetRefused, SequenceLost
from tests.support.engine import Engine
from tests.support.watched import WatchedPolicy

A = list(range(1, 9))


def _version(revision: str) -> Namespace:
    return Namespace(model="m", revision=revision, format=BlockFormat.of_tokens(4))


def test_b164_new_weights_find_nothing_of_the_old_ones() -> None:
    """B164: commit A under version 1, match under version 2: 0 everywhere; back to version 1 it hits again."""
    engine = Engine(page_count=16)
    first, second = _version("1"), _version("2")
    engine.serve(A, namespace=first)
    in_flight = engine.begin([*A, 9, 10, 11, 12], namespace=first)
    assert engine.serve(A, namespace=second) == 0
    in_flight.prefill()  # finishes after the change; what it publishes belongs to the old weights
    in_flight.release()
    assert engine.cached([*A, 9, 10, 11, 12], namespace=second) == 8
    assert engine.serve([*A, 9, 10, 11, 12, 13], namespace=second) == 8
    assert engine.serve([*A, 9, 10, 11, 12, 13], namespace=first) == 12
    engine.check_quiet()


def test_b165_a_reset_under_running_requests_is_refused_aloud() -> None:
    """B165: refuse: an exception that says how many run, and nothing was changed; parked ones count as running."""
    engine = Engine(page_count=16)
    engine.serve([20, 21, 22, 23])
    running, parked = engine.begin(A), engine.begin(A)
    running.prefill()
    parked.park()
    before = engine.store.stats()
    with pytest.raises(ResetRefused, match="2 sequences still run") as refused:
        engine.store.reset()
    assert refused.value.running == 2
    assert engine.store.stats() == before
    engine.check()
    running.release()
    parked.resume()
    parked.release()
    assert engine.store.reset() == 3
    stats = engine.store.stats()
    assert (stats.free_pages, stats.cached_pages, stats.nodes, stats.namespaces) == (16, 0, 0, 0)
    assert stats.evicted_blocks[EvictionReason.RESET.value] == 3
    assert engine.cached(A) == 0
    assert engine.store.reset() == 0
    engine.check_quiet()


@pytest.mark.parametrize("policy", policy_names())
def test_b165_a_forced_reset_tells_the_holders_and_keeps_their_pages(policy: str) -> None:
    """B165: force: everybody who runs is told "lost"; no page is reused under them; the rest is free at once."""
    engine = Engine(page_count=16, policy=make_policy(policy))
    engine.serve([20, 21, 22, 23])
    sharing = [engine.begin([*A, 9]) for _ in range(2)]
    for request in sharing:
        request.prefill()
    parked = engine.begin(A)
    parked.park()
    pages = set(sharing[0].pages) | set(sharing[1].pages)
    assert engine.store.reset(force=True) == 3
    assert engine.store.stats().free_pages == 16 - len(pages)
    others = engine.grab(16 - len(pages))
    engine.check()
    assert parked.sequence.is_lost
    for request in sharing:
        assert request.sequence.is_lost
        with pytest.raises(SequenceLost):
            request.sequence.reserve(through=4)
        with pytest.raises(SequenceLost):
            request.sequence.commit(through=0)
    with pytest.raises(SequenceLost):
        sharing[0].sequence.park()
    with pytest.raises(SequenceLost):
        parked.sequence.resume()
    others.abandon()
    assert engine.serve(A) == 0  # cached anew while the lost ones still live
    assert engine.serve([*A, 9]) == 8
    for request in (*sharing, parked):
        request.release()
        engine.check()
    with pytest.raises(InvalidRequest):
        sharing[0].sequence.reserve(through=4)
    assert engine.cached(A) == 8
    engine.check_quiet()


@pytest.mark.parametrize("stage", ["begun", "reserved", "private", "kept its own", "parked"])
def test_b165_force_finds_a_request_at_any_stage(stage: str) -> None:
    """B165: a request that holds nothing of the tree, pages of its own, or a second copy is lost like the others."""
    engine = Engine(page_count=16)
    if stage == "kept its own":
        engine.serve(A)
    request = engine.begin([*A, 9], skip_read=stage == "kept its own", skip_write=stage == "private")
    if stage != "begun":
        request.reserve()
        request.write()
    if stage in ("private", "kept its own"):
        request.commit(fold=False)
    if stage == "parked":
        request.park()
    engine.store.reset(force=True)
    assert request.sequence.is_lost
    with pytest.raises(SequenceLost):
        request.resume() if stage == "parked" else request.commit()
    engine.serve(A)
    engine.check()
    request.release()
    assert engine.cached(A) == 8
    engine.check_quiet()


def test_b165_what_a_lost_request_does_afterwards_reaches_nobody() -> None:
    """B165: its late use is ignored, its dropped handle is swept, a second forced reset finds it as it was."""
    watched = WatchedPolicy(make_policy("lru"))
    engine = Engine(page_count=16, policy=watched)
    lost, dropped = engine.begin(A, request_id="lost"), engine.begin(A)
    lost.prefill()
    dropped.prefill()
    engine.store.reset(force=True)
    engine.store.reset(force=True)
    lost.sequence.append([9])
    engine.check()
    del dropped
    assert engine.store.stats().ended_unreleased == 1
    lost.release()
    lost.release()
    assert watched.used_by == []
    assert engine.store.stats().free_pages == 16
    engine.check_quiet()


def test_b165_forced_resets_leave_nothing_behind() -> None:
    """B165: hundreds of forced resets, each with a request under way: nothing is kept of those that are lost."""
    engine = Engine(page_count=16)
    request = engine.begin(A)

    def reset(times: int) -> None:
        nonlocal request
        for _ in range(times):
            engine.store.reset(force=True)
            request.release()
            request = engine.begin(A)
            request.prefill()

    tracemalloc.start()
    try:
        reset(5000)  # by now the log of evictions is full
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        reset(400)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    request.release()
    assert after - before < 4_000
    engine.check_quiet()


def test_b165_a_reset_is_no_eviction_for_want_of_room() -> None:
    """B165: the counters say that the cache was cleared, in every namespace."""
    engine = Engine(page_count=16)
    for revision in ("1", "2"):
        engine.serve(A, namespace=_version(revision))
    assert engine.store.reset() == 4
    stats = engine.store.stats()
    assert stats.evicted_blocks == {"capacity": 0, "retention": 0, "reset": 4}
    assert stats.namespaces == 0
    engine.check_quiet()
