"""Behaviours that engines' own tests fix, B: allocation, counts and eviction (18 to 32). README.md says where ours
differ.
"""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from eviction import LruPolicy, make_policy, policy_names
from kvstore import OutOfPages
from tests.support.engine import Engine, Request, Walk
from tests.support.watched import WatchedPolicy

P = 4
A = list(range(1, 4 * P + 1))


def _short(engine: Engine, page_count: int) -> OutOfPages:
    """Ask for pages that are not there; the store must be as before."""
    before = engine.store.stats()
    request = engine.begin([0], skip_read=True, skip_write=True)
    with pytest.raises(OutOfPages) as refused:
        request.reserve(through=page_count * P)
    assert not request.pages
    request.abandon()
    after = engine.store.stats()
    assert (after.free_pages, after.cached_pages, after.evictable_pages, after.evicted_blocks, after.nodes) == (
        before.free_pages,
        before.cached_pages,
        before.evictable_pages,
        before.evicted_blocks,
        before.nodes,
    )
    assert after.out_of_pages == before.out_of_pages + 1
    engine.check()
    return refused.value


def test_b18_one_page_too_many_changes_nothing() -> None:
    """n pages are free, n + 1 are asked for."""
    engine = Engine(page_count=6)
    refused = _short(engine, 7)
    assert (refused.needed, refused.free, refused.evictable) == (7, 6, 0)
    engine.grab(6).abandon()
    engine.check_quiet()


def test_b19_a_hit_is_not_sacrificed_to_its_own_request() -> None:
    """The hit pages are the only candidates, and the rest doesn't fit without them: refused, and they still hit."""
    engine = Engine(page_count=6)
    engine.serve(A)
    with engine.begin([*A, *range(100, 100 + 3 * P)]) as request:
        assert request.sequence.cached_tokens == 4 * P
        with pytest.raises(OutOfPages) as refused:
            request.prefill()
        assert (refused.value.needed, refused.value.free, refused.value.evictable) == (3, 2, 0)
        engine.check()
        assert engine.cached(A) == 4 * P
        request.abandon()
    assert engine.cached(A) == 4 * P
    engine.check_quiet()


def test_b20_shared_pages_stay_until_the_last_of_their_requests_ends() -> None:
    """Two requests share pages; one ends."""
    engine = Engine(page_count=6)
    engine.serve(A)
    first, second = engine.begin([*A, 50]), engine.begin([*A, 60])
    first.release()
    assert engine.store.stats().evictable_pages == 0
    _short(engine, 3)
    second.release()
    assert engine.store.stats().evictable_pages == 4
    engine.check_quiet()


@pytest.mark.parametrize("policy", policy_names())
def test_b21_the_tail_goes_before_the_head(policy: str) -> None:
    """A finished sequence loses its blocks from the end, one by one."""
    engine = Engine(page_count=8, policy=make_policy(policy))
    engine.serve(A)
    for left in (3, 2, 1, 0):
        engine.evict(1)
        assert engine.cached(A) == left * P
        assert engine.store.stats().cached_pages == left
    engine.check_quiet()


def test_b22_pages_that_nobody_can_match_are_reused_before_any_cached_one() -> None:
    """Started, abandoned and private pages are free at once (README.md), so they go before anything cached."""
    engine = Engine(page_count=8)
    engine.serve(A)
    started = engine.begin([50, 51])
    started.prefill()
    unpublished = engine.begin([60, 61, 62, 63])
    unpublished.reserve()
    private = engine.grab(2)
    for request in (started, unpublished, private):
        request.release()
    assert engine.store.stats().free_pages == 4
    others = engine.grab(4)
    assert engine.cached(A) == 4 * P
    assert sum(engine.store.stats().evicted_blocks.values()) == 0
    others.abandon()
    engine.check_quiet()


def test_b23_an_evicted_page_no_longer_hits_and_its_id_serves_another_block() -> None:
    """The number is reused under a new name; the old name is gone until somebody computes it again."""
    engine = Engine(page_count=4)
    with engine.begin(A) as request:
        request.prefill()
        pages = request.pages
    other = list(range(100, 100 + 4 * P))
    with engine.begin(other) as request:
        request.prefill()
        assert sorted(request.pages) == sorted(pages)
    assert (engine.cached(A), engine.cached(other)) == (0, 4 * P)
    assert engine.serve(A) == 0
    assert (engine.cached(A), engine.cached(other)) == (4 * P, 0)
    engine.check_quiet()


def test_b24_of_two_pages_with_one_name_the_shared_one_serves_hits() -> None:
    """Duplicates fold or stay private (README.md): the end of the private copy takes no hit away."""
    engine = Engine(page_count=10)
    first = engine.begin(A)
    first.prefill()
    second = engine.begin(A, skip_read=True)
    second.reserve()
    second.write()
    second.commit(fold=False)
    assert set(second.pages).isdisjoint(first.pages)
    first.release()
    engine.check()
    second.release()
    assert engine.serve([*A, 1]) == 4 * P
    assert engine.store.stats().duplicate_blocks == 4
    engine.check_quiet()


def test_b24_a_request_that_joins_the_tree_half_way_folds_only_that_half() -> None:
    """The tree has two of four blocks when the request commits: those fold, the others become the shared ones."""
    engine = Engine(page_count=12)
    request = engine.begin(A)
    request.reserve()
    request.write()
    engine.serve(A[: 2 * P])
    assert request.commit().remapped == range(2)
    engine.check()
    request.release()
    assert engine.store.stats().cached_pages == 4
    engine.check_quiet()


@pytest.mark.parametrize("policy", policy_names())
def test_b25_evicting_everything_takes_exactly_what_is_not_locked(policy: str) -> None:
    """A locked path stays; free + evictable + protected is the total at all times."""
    engine = Engine(page_count=32, policy=make_policy(policy))
    engine.serve(A)
    engine.serve([*A[: 2 * P], *range(200, 200 + 2 * P)])
    engine.serve(range(300, 300 + 3 * P))
    locked = engine.begin([*A[: 3 * P], 99])
    stats = engine.store.stats()
    protected = stats.cached_pages - stats.evictable_pages
    assert (stats.cached_pages, protected) == (9, 3)
    engine.grab_all().abandon()
    stats = engine.store.stats()
    assert (stats.cached_pages, stats.evictable_pages, stats.free_pages) == (3, 0, 29)
    assert engine.cached(A) == 3 * P
    engine.check()
    locked.release()
    engine.check_quiet()


def test_b25_the_total_holds_at_every_step_of_a_walk() -> None:
    """available + evictable + protected == total, whatever happens."""
    engine = Engine(page_count=16)
    walk = Walk(engine, seed=25)
    for _ in range(300):
        walk.step()
        stats = engine.store.stats()
        protected = stats.cached_pages - stats.evictable_pages
        assert stats.free_pages + stats.evictable_pages + protected + stats.reserved_pages == stats.page_count
        assert min(protected, stats.evictable_pages, stats.free_pages, stats.reserved_pages) >= 0
    walk.quiet()
    engine.check_quiet()


@pytest.mark.parametrize("policy", policy_names())
def test_b26_a_parent_becomes_a_candidate_without_child_and_without_lock(policy: str) -> None:
    """A leaf goes, and its parent follows only if no child is left and nobody holds it."""
    engine = Engine(page_count=16, policy=make_policy(policy))
    left, right = [*A[: 2 * P], *range(100, 100 + P)], [*A[: 2 * P], *range(200, 200 + P)]
    engine.serve(left)
    engine.serve(right)
    engine.evict(1)
    assert (engine.cached(left), engine.cached(right)) == (2 * P, 3 * P)
    holder = engine.begin([*A[: 2 * P], 1])
    engine.evict(1)
    assert engine.cached(right) == 2 * P
    assert engine.store.stats().evictable_pages == 0
    holder.release()
    engine.evict(1)
    assert engine.cached(A) == P
    engine.check_quiet()


#: In which order B27 loses the prompts 0..3, used as 0, 1, 2, 3, 1, 0. A new policy belongs here.
_ORDER = {"lru": (2, 3, 1, 0), "fifo": (0, 1, 2, 3)}


@pytest.mark.parametrize("policy", policy_names())
@pytest.mark.parametrize("need", range(1, 8))
def test_b27_exactly_what_is_needed_goes_in_the_order_of_the_policy(policy: str, need: int) -> None:
    """k pages are needed, k go, and they are the first k of the policy's order."""
    assert policy in _ORDER, f"say here in which order {policy} evicts"

    def filled() -> tuple[Engine, list[list[int]]]:
        engine = Engine(page_count=16, policy=make_policy(policy))
        prompts = [list(range(start, start + 2 * P)) for start in (100, 200, 300, 400)]
        for at in (0, 1, 2, 3, 1, 0):
            engine.serve(prompts[at])
        return engine, prompts

    engine, prompts = filled()
    engine.evict(need)
    stats = engine.store.stats()
    assert (stats.evicted_blocks["capacity"], stats.cached_pages) == (need, 8 - need)
    one_by_one, _ = filled()
    for _ in range(need):
        one_by_one.evict(1)
    expected = dict.fromkeys(range(4), 2)
    for taken in range(need):
        expected[_ORDER[policy][taken // 2]] -= 1
    for each in (engine, one_by_one):
        assert {at: each.cached(prompt) // P for at, prompt in enumerate(prompts)} == expected
        each.check_quiet()


def test_b28_an_eviction_that_cannot_be_met_asks_the_policy_nothing() -> None:
    """Nothing goes, no order moves, and the next eviction takes what it would have taken before."""
    watched: WatchedPolicy[Hashable] = WatchedPolicy(LruPolicy())
    engine = Engine(page_count=8, policy=watched)
    engine.serve(A[: 2 * P])
    engine.serve(range(100, 100 + 2 * P))
    holder = engine.begin([*A[:P], 99])
    watched.calls.clear()
    request = engine.begin([0], skip_read=True, skip_write=True)
    with pytest.raises(OutOfPages):
        request.reserve(through=8 * P)
    assert not watched.calls
    request.abandon()
    engine.check()
    engine.evict(1)
    assert engine.cached(A) == P
    holder.release()
    engine.check_quiet()


def test_b29_blocks_that_a_request_builds_on_are_safe_from_its_own_reservation() -> None:
    """What is cached already of the prompt being stored is no victim of storing the rest of it."""
    engine = Engine(page_count=8)
    engine.serve(A)  # the coldest
    engine.serve(range(100, 100 + 4 * P))
    longer = [*A, *range(50, 50 + 4 * P)]
    with engine.begin(longer) as request:
        request.reserve(through=6 * P)
        request.write(through=6 * P)
        request.commit()
        assert engine.cached(longer) == 6 * P
        request.prefill()
        engine.check()
    assert engine.cached(longer) == 8 * P
    assert engine.cached(range(100, 100 + 4 * P)) == 0
    engine.check_quiet()


def _touched_while_held(engine: Engine) -> Request:
    """A, then B are cached; A is held while another request uses it."""
    engine.serve(A[: 2 * P])
    engine.serve(range(100, 100 + 2 * P))
    holder = engine.begin([*A[: 2 * P], 99])
    engine.serve([*A[: 2 * P], 98])
    return holder


def test_b31_a_use_while_held_counts_and_letting_go_does_not() -> None:
    """Recency moves though the run isn't evictable; unheld, it has the time of its use, not of the unpin."""
    engine = Engine(page_count=12)
    holder = _touched_while_held(engine)
    assert engine.store.stats().evictable_pages == 2
    engine.serve(range(300, 300 + 2 * P))  # used after A
    holder.abandon()  # unpinned last
    order = []
    prompts = {"A": A[: 2 * P], "B": list(range(100, 100 + 2 * P)), "C": list(range(300, 300 + 2 * P))}
    for _ in range(6):
        before = {name: engine.cached(prompt) for name, prompt in prompts.items()}
        engine.evict(1)
        order += [name for name, prompt in prompts.items() if engine.cached(prompt) < before[name]]
    assert order == ["B", "B", "A", "A", "C", "C"]
    engine.check_quiet()


def test_b32_a_request_from_before_a_reset_renews_nothing_after_it() -> None:
    """Its late use is ignored: what was cached since keeps its order."""
    watched: WatchedPolicy[Hashable] = WatchedPolicy(LruPolicy())
    engine = Engine(page_count=16, policy=watched)
    early = engine.begin([*A[: 2 * P], 99], request_id="early")
    early.prefill()
    engine.store.reset(force=True)
    engine.serve(A[: 2 * P], request_id="A")
    engine.serve(range(100, 100 + 2 * P), request_id="B")
    early.release()
    assert watched.used_by == ["A", "B"]
    engine.evict(2)
    assert engine.cached(A[: 2 * P]) == 0
    assert engine.cached(range(100, 100 + 2 * P)) == 2 * P
    engine.check_quiet()
