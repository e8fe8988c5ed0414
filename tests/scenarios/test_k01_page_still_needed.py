"""K01: a page is evicted, freed or reused while somebody still needs it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kvstore import InvalidRequest, OutOfPages, SequenceLost
from tests.support.engine import Engine, Request

A = list(range(1, 9))


def test_b004_the_page_that_fills_last_is_present_with_its_own_bytes_or_absent() -> None:
    """B004: the second page fills on the last token; after the release, others take every page that is left over."""
    engine = Engine(page_count=4)
    with engine.begin(A[:6]) as request:
        request.decode(A[6:])
    other = engine.grab(engine.store.stats().free_pages)
    # The last sampled token was never computed: its page was not published, so it may be reused, but not matched.
    assert engine.cached([*A, 9]) == 4
    engine.check()
    other.abandon()
    with engine.begin(A[:6]) as request:
        request.decode([*A[6:], 9])
    with engine.begin([*A, 9]) as reader:
        assert reader.sequence.cached_tokens == 8
        everything_else = engine.grab_all()
        reader.verify()
        everything_else.abandon()
    engine.check_quiet()


def _by_prefill(engine: Engine) -> Request:
    stats = engine.store.stats()
    request = engine.begin([99] * (4 * (stats.free_pages + stats.evictable_pages)))
    request.prefill()
    return request


def _by_decode(engine: Engine) -> Request:
    stats = engine.store.stats()
    request = engine.begin([99])
    request.decode([98] * 4 * (stats.free_pages + stats.evictable_pages))
    return request


def _by_resume(engine: Engine) -> Request:
    stats = engine.store.stats()
    request = engine.begin([99] * (4 * (stats.free_pages + stats.evictable_pages)))
    request.park()
    request.resume()
    request.prefill()
    return request


def _by_batch(engine: Engine) -> Request:
    stats = engine.store.stats()
    request = engine.begin([99] * (4 * (stats.free_pages + stats.evictable_pages)))
    engine.store.batch([request.sequence]).reserve(ahead=0)
    engine.pool.pages[request.pages] = engine.poison
    return request


@pytest.mark.parametrize("claim", [_by_prefill, _by_decode, _by_resume, _by_batch])
def test_b005_no_path_hands_out_a_page_that_somebody_reads(claim: Callable[[Engine], Request]) -> None:
    """B005: one tier: a reader pins 2 of 6 pages; whoever takes all it can get, by whichever path, gets others."""
    engine = Engine(page_count=6)
    engine.serve(A)
    engine.serve([20, 21, 22, 23])
    reader = engine.begin([*A, 9])
    greedy = claim(engine)
    assert set(greedy.pages).isdisjoint(reader.pages)
    assert engine.store.stats().evictable_pages == engine.store.stats().free_pages == 0
    engine.check()
    with pytest.raises(OutOfPages):
        reader.reserve()
    engine.check()
    greedy.abandon()
    reader.abandon()
    engine.check_quiet()


def test_b006_a_reader_that_lost_its_claim_is_told_and_its_pages_stay_until_it_lets_go() -> None:
    """B006: one tier: the claim ends by a forced reset; foreign bytes never appear as A, and every use says "lost"."""
    engine = Engine(page_count=4)
    engine.serve(A)
    reader = engine.begin([*A, 9])
    engine.store.reset(force=True)
    others = engine.grab_all()
    assert set(others.pages).isdisjoint(reader.pages)
    reader.verify()
    assert reader.sequence.is_lost
    with pytest.raises(SequenceLost):
        reader.reserve()
    with pytest.raises(SequenceLost):
        reader.commit()
    reader.release()
    with pytest.raises(InvalidRequest):
        reader.reserve()
    others.abandon()
    assert engine.cached(A) == 0
    engine.check_quiet()


def test_b009_a_running_request_is_remapped_before_its_duplicates_are_reused() -> None:
    """B009: X and Y prefill the same A at once on different pages; X commits, then Y, which keeps running."""
    engine = Engine(page_count=6)
    x, y = engine.begin(A), engine.begin(A)
    for request in (x, y):
        request.reserve()
        request.write()
    assert set(x.pages).isdisjoint(y.pages)
    own = y.pages
    assert x.commit().remapped == range(0)
    assert y.commit().remapped == range(2)
    assert y.pages == x.pages
    free = engine.grab(engine.store.stats().free_pages)
    assert set(own) <= set(free.pages)
    engine.check()
    x.release()
    engine.check()
    y.append([9])
    with pytest.raises(OutOfPages):
        y.prefill()
    free.abandon()
    y.prefill()
    engine.check()
    y.release()
    engine.check_quiet()


def test_b009_a_request_that_keeps_its_own_duplicates_reads_them_to_its_end() -> None:
    """B009: the other way out, ``fold=False``: the duplicates are not freed while the page table points at them."""
    engine = Engine(page_count=6)
    engine.serve(A)
    y = engine.begin(A, skip_read=True)
    y.reserve()
    y.write()
    own = y.pages
    assert y.commit(fold=False).remapped == range(0)
    assert y.pages == own
    greedy = engine.grab_all()
    engine.check()
    greedy.abandon()
    y.release()
    assert engine.cached(A) == 8
    assert engine.store.stats().free_pages == 4
    engine.check_quiet()


@pytest.mark.parametrize("end", ["abandon", "release", "park"])
def test_b010_chunks_published_before_an_abort_belong_to_the_tree(end: str) -> None:
    """B010: commit A in two chunks; after chunk 1 the request is aborted, and others write over all free pages."""
    engine = Engine(page_count=4)
    request = engine.begin(A)
    request.reserve()
    request.write(through=4)
    request.commit()
    getattr(request, end)()
    other = engine.grab(engine.store.stats().free_pages)
    with engine.begin(A) as again:  # checks the stamps of what it finds
        assert again.sequence.cached_tokens == 4
        engine.check()
    request.abandon()
    other.abandon()
    everything = engine.grab_all()
    assert engine.cached(A) == 0
    everything.abandon()
    engine.check_quiet()


def test_b012_a_look_up_is_either_advice_or_a_pin() -> None:
    """B012: the look-up says 4 pages, then 2 are evicted; what a request relies on is what it holds."""
    engine = Engine(page_count=6)
    prompt = list(range(1, 18))
    engine.serve(prompt)
    assert engine.cached(prompt) == 16
    engine.evict(2)
    request = engine.begin(prompt)
    assert request.sequence.cached_tokens == engine.cached(prompt) == 8
    assert len(request.pages) == 2
    request.prefill()
    engine.check()
    request.release()

    pinned = engine.begin(prompt)
    assert pinned.sequence.cached_tokens == 16
    with pytest.raises(OutOfPages):
        engine.grab(3)
    assert engine.cached(prompt) == 16
    pinned.release()
    engine.check_quiet()


def test_b012_a_page_table_is_a_snapshot_that_nobody_can_write() -> None:
    """B012: a table read earlier doesn't change under its reader, nor can it change the store."""
    engine = Engine(page_count=4)
    request = engine.begin(A)
    request.reserve(through=4)
    table = request.sequence.page_table
    request.reserve(through=8)
    assert len(table) == 1
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 3
    request.abandon()
    assert np.array_equal(table, [table[0]])
    assert not request.pages
    engine.check_quiet()
