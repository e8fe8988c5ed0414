"""K04: pages and pins that leak on abort, failed admission, preemption or exception."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable

import pytest

from kvstore import OutOfPages, Prompt
from tests.support.engine import Engine, Request

A = list(range(1, 9))


def _drop(engine: Engine) -> None:
    engine.store.begin(Prompt.of_tokens([*A, 9]))


def _raise(engine: Engine) -> None:
    with pytest.raises(RuntimeError), engine.store.begin(Prompt.of_tokens([*A, 9])):
        raise RuntimeError


def _drop_in_a_cycle(engine: Engine) -> None:
    holder: list[object] = [engine.store.begin(Prompt.of_tokens([*A, 9]))]
    holder.append(holder)


def _end(engine: Engine) -> None:
    engine.store.begin(Prompt.of_tokens([*A, 9])).abandon()


@pytest.mark.parametrize("lose", [_end, _raise, _drop, _drop_in_a_cycle])
def test_b031_a_look_up_that_nobody_uses_pins_nothing_for_long(lose: Callable[[Engine], None]) -> None:
    """B031: match A 10 000 times and drop the result: by an end, an exception, garbage collection."""
    engine = Engine(page_count=4)
    engine.serve(A)
    for _ in range(10_000):
        lose(engine)
    gc.collect()
    stats = engine.store.stats()
    assert (stats.running, stats.evictable_pages, stats.requests) == (0, 2, 1)
    assert stats.ended_unreleased == (10_000 if lose in (_drop, _drop_in_a_cycle) else 0)
    assert engine.serve(range(20, 36)) == 0  # B fits whole
    assert engine.cached(range(20, 36)) == 16
    engine.check_quiet()


def _reserve_alone(engine: Engine, request: Request) -> None:
    request.reserve()


def _reserve_in_a_batch(engine: Engine, request: Request) -> None:
    engine.store.batch([request.sequence]).reserve()


@pytest.mark.parametrize("reserve", [_reserve_alone, _reserve_in_a_batch])
def test_b031_what_was_dropped_is_found_before_a_reservation_is_refused(
    reserve: Callable[[Engine, Request], None],
) -> None:
    """B031: a reservation that needs the pages of a dropped request gets them, alone or in a batch."""
    engine = Engine(page_count=4)
    dropped = engine.store.begin(Prompt.of_tokens(A))
    dropped.reserve(through=16)
    request = engine.begin(A[:4])
    del dropped
    reserve(engine, request)
    assert engine.store.stats().ended_unreleased == 1
    request.abandon()
    engine.check_quiet()


def test_b031_an_audit_counts_what_the_collector_finds_while_it_runs() -> None:
    """B031: a request in a garbage cycle is collected in the middle of an audit; that is no broken invariant."""
    engine = Engine(page_count=64)
    for at in range(30):
        engine.serve([at] * 8)
    was = gc.get_threshold()
    gc.collect()
    gc.disable()
    try:
        for at in range(40):
            _drop_in_a_cycle(engine)
            gc.set_threshold(20 + at)  # at another place of the audit each time
            gc.enable()
            engine.store.audit()
            gc.disable()
    finally:
        gc.set_threshold(*was)
        gc.enable()
    gc.collect()
    engine.check_quiet()


@pytest.mark.parametrize("order", sorted(itertools.permutations(["x", "y", "reset", "evict"])))
def test_b032_a_page_comes_free_with_the_last_of_its_holders_in_any_order(order: tuple[str, ...]) -> None:
    """B032: one tier: two holders end, everything is forgotten, others want the room, in all 24 orders."""
    engine = Engine(page_count=4)
    engine.serve(A)
    holders = {"x": engine.begin([*A, 9]), "y": engine.begin([*A, 10])}
    holding, forgotten = {"x", "y"}, False
    for event in order:
        if event in holders:
            holders[event].release()
            holding.remove(event)
        elif event == "reset":
            engine.store.reset(force=True)
            forgotten = True
        else:
            engine.grab_all().abandon()
            forgotten = forgotten or not holding
        engine.check()
        stats = engine.store.stats()
        assert stats.free_pages == (4 if forgotten and not holding else 2)
        assert stats.evictable_pages == (0 if forgotten or holding else 2)
    engine.check_quiet()


def test_b033_the_normal_path_drops_every_reference() -> None:
    """B033: one tier: 1 000 hits on one prompt at D=8, in tables that own pages and in tables that own none."""
    engine = Engine(page_count=8)
    engine.serve(A)
    for turn in range(1000):
        with engine.begin([*A, 100 + turn]) as request:
            assert request.sequence.cached_tokens == 8
            request.prefill()
        stats = engine.store.stats()
        assert (stats.free_pages, stats.cached_pages, stats.evictable_pages) == (6, 2, 2)
    engine.check_quiet()


_STAGES: list[Callable[[Request], None]] = [
    lambda request: None,
    lambda request: request.reserve(through=4),
    lambda request: request.prefill(chunk=4),
    lambda request: request.decode([50, 51]),
    lambda request: request.park(),
]


@pytest.mark.parametrize("end", ["release", "abandon"])
@pytest.mark.parametrize("stages", range(len(_STAGES) + 1))
def test_b040_a_queue_is_killed_at_any_stage(stages: int, end: str) -> None:
    """B040: 64 requests, room for 4; all are killed at once, each stage reached by those that fit."""
    engine = Engine(page_count=12)
    requests = [engine.begin([at, *A]) for at in range(64)]
    for request in requests:
        try:
            for stage in _STAGES[:stages]:
                stage(request)
        except OutOfPages:
            continue
    engine.check()
    for request in requests:
        getattr(request, end)()
    engine.check_quiet()
    assert engine.serve(A) == 0
    assert engine.serve([*A, 9]) == 8


@pytest.mark.parametrize("ends", sorted(itertools.product(["release", "abandon", "park"], ["release", "abandon"])))
def test_b041_an_end_after_an_end_is_quiet(ends: tuple[str, str]) -> None:
    """B041: finish then abort, abort then finish, abort twice, preempt then either: nothing is counted twice."""
    engine = Engine(page_count=4)
    request = engine.begin(A)
    request.prefill()
    getattr(request, ends[0])()
    after_one = engine.store.stats()
    getattr(request, ends[1])()
    getattr(request, ends[1])()
    stats = engine.store.stats()
    if ends[0] != "park":
        assert stats == after_one
    assert (stats.requests, stats.running, stats.free_pages, stats.evictable_pages) == (1, 0, 2, 2)
    engine.check_quiet()


def test_b041_a_request_that_never_got_a_page_ends_as_well() -> None:
    """B041: ends of a request that never got a page, with and without an exception underway."""
    engine = Engine(page_count=1)
    engine.begin([1]).release()
    engine.begin([1]).abandon()
    with pytest.raises(OutOfPages), engine.begin(A) as request:
        request.prefill()
    assert engine.store.stats().requests == 1
    engine.check_quiet()
