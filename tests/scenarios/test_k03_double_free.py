"""K03: double free, corrupt reference counts, a corrupt free list."""

from __future__ import annotations

import itertools
from array import array

import numpy as np
import pytest

from eviction import make_policy, policy_names
from kvstore import BlockAllocator, InvalidRequest, KVStoreError, OutOfPages
from tests.support.engine import Engine, Walk

A = list(range(1, 9))


@pytest.mark.parametrize(
    ("pages", "problem"),
    [
        ([1, 1], "named twice"),
        ([0, 1, 2, 0], "named twice"),
        (array("i", [2, 2]), "named twice"),
        (np.array([2, 2], np.int64), "named twice"),
        ([0, 1, 2, 0, 1, 2, 0, 1, 2], "named twice"),
        ([3], "already free"),
        ([1, 3], "already free"),
        ([4], r"lie in \[0, 4\)"),
        ([-1], r"lie in \[0, 4\)"),
        ([1.0], "one row of integers"),
        ([True], "one row of integers"),
        ([[1, 2]], "one row of integers"),
    ],
)
def test_b023_a_bad_list_of_pages_is_refused_as_a_whole(pages: list[int], problem: str) -> None:
    """B023: a page twice in one call, a page that is free, a page that was never there: typed errors, no change."""
    allocator = BlockAllocator(4)
    assert list(allocator.take(3)) == [0, 1, 2]
    with pytest.raises(InvalidRequest, match=problem):
        allocator.give(pages)
    assert allocator.free_count == 1
    assert [allocator.is_out(page) for page in range(4)] == [True, True, True, False]
    allocator.check_invariants()
    allocator.give([0, 2, 1])
    with pytest.raises(InvalidRequest, match="already free"):
        allocator.give([0])
    assert sorted(allocator.take(4)) == [0, 1, 2, 3]


def test_b023_a_second_release_gives_nothing_back() -> None:
    """B023: the same request released twice while another one has got its pages."""
    engine = Engine(page_count=4)
    request = engine.begin(A)
    request.reserve()
    request.abandon()
    other = engine.grab(4)
    request.release()
    request.abandon()
    assert engine.store.stats().free_pages == 0
    engine.check()
    other.abandon()
    assert engine.store.stats().free_pages == 4
    engine.check_quiet()


@pytest.mark.parametrize("policy", policy_names())
@pytest.mark.parametrize("seed", range(3))
def test_b024_any_order_of_ends_gives_every_page_back(policy: str, seed: int) -> None:
    """B024: finish, stop, abort, preempt, resume in random order, each possibly twice."""
    engine = Engine(page_count=10, policy=make_policy(policy))
    walk = Walk(engine, seed=seed)
    for _ in range(400):
        walk.step()
        engine.check()
    walk.quiet()
    engine.check_quiet()
    stats = engine.store.stats()
    assert stats.out_of_pages > 0, "too easy: the pool never ran dry"
    assert stats.resumed_tokens > 0
    assert stats.hit_tokens > 0


@pytest.mark.parametrize("count", [-1, -5, 1.0, 2.5, float("nan"), True, False, None, "1", np.float64(1)])
def test_b025_a_count_that_is_no_count_is_refused(count: int) -> None:
    """B025: negative, fractional, boolean: typed, and nothing changes."""
    engine = Engine(page_count=4)
    allocator = BlockAllocator(4)
    with pytest.raises(InvalidRequest):
        allocator.take(count)
    assert allocator.free_count == 4
    with engine.begin(A) as request:
        with pytest.raises(InvalidRequest):
            request.sequence.reserve(through=count)
        with pytest.raises(InvalidRequest):
            request.sequence.commit(through=count)
        assert not request.pages
        engine.check()
    assert engine.store.stats().free_pages == 4


def test_b025_nothing_is_asked_and_too_much_is_asked() -> None:
    """B025: 0 is an empty result, one more than there is a typed "no room" that carries the numbers."""
    allocator = BlockAllocator(4)
    assert list(allocator.take(0)) == []
    allocator.give([])
    with pytest.raises(OutOfPages, match="need 5 pages, have 4 free and 0 evictable"):
        allocator.take(5)
    assert allocator.free_count == 4
    engine = Engine(page_count=4)
    with engine.begin(A) as request:
        request.reserve(through=0)
        assert not request.pages
        with pytest.raises(OutOfPages) as refused:
            request.reserve(through=17)
        assert (refused.value.needed, refused.value.free, refused.value.evictable) == (5, 4, 0)
        assert not request.pages
        request.reserve(through=np.int32(16))
        assert len(request.pages) == 4


@pytest.mark.parametrize("seed", range(2))
def test_b026_counts_equal_the_sets_that_they_count(seed: int) -> None:
    """B026: one tier: D=2 and 3, thousands of random steps; no count ever leaves its range."""
    for page_count in (2, 3):
        engine = Engine(page_count=page_count, block_tokens=2)
        walk = Walk(engine, seed=seed, length_max=6)
        for _ in range(1000):
            walk.step()
            engine.store.audit()
            stats = engine.store.stats()
            assert stats.free_pages + stats.cached_pages + stats.reserved_pages == page_count
            assert 0 <= stats.evictable_pages <= stats.cached_pages
            assert min(stats.free_pages, stats.reserved_pages) >= 0
        walk.quiet()
        engine.check_quiet()


@pytest.mark.parametrize("ends", sorted(set(itertools.product(["release", "abandon"], repeat=3))))
def test_b028_a_holder_that_lets_go_twice_does_not_let_go_for_another(ends: tuple[str, ...]) -> None:
    """B028: two holders of one page; the first ends twice. The second end changes nothing, it is not clamped."""
    engine = Engine(page_count=4)
    engine.serve(A)
    first, second = engine.begin([*A, 9]), engine.begin([*A, 10])
    getattr(first, ends[0])()
    getattr(first, ends[1])()
    assert engine.store.stats().evictable_pages == 0
    with pytest.raises(OutOfPages):
        engine.grab(3)
    engine.check()
    getattr(second, ends[2])()
    assert engine.store.stats().evictable_pages == 2
    engine.check_quiet()


def test_b028_an_ended_request_refuses_everything_but_another_end() -> None:
    """B028: what an ended request is asked to do is an error of the caller, never a change of a count."""
    engine = Engine(page_count=4)
    request = engine.begin(A)
    request.prefill()
    request.release()
    before = engine.store.stats()
    for act in (
        lambda: request.sequence.reserve(through=12),
        lambda: request.sequence.commit(through=8),
        lambda: request.sequence.append([9]),
        request.sequence.park,
        request.sequence.resume,
    ):
        with pytest.raises(KVStoreError):
            act()
    assert engine.store.stats() == before
    engine.check_quiet()
