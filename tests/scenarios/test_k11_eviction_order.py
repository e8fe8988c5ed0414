"""K11: the wrong block is evicted, or a policy's state never moves. Each registered policy, through the store."""

from __future__ import annotations

import itertools

import pytest

from eviction import make_policy, policy_names
from tests.support.engine import Engine
from tests.support.watched import WatchedPolicy

A = list(range(1, 33))


def _one_page(number: int) -> list[int]:
    """A prompt of one page."""
    return [1000 + number] * 4


def _survivors(engine: Engine, numbers: range) -> set[int]:
    return {number for number in numbers if engine.cached(_one_page(number))}


@pytest.mark.parametrize("policy", policy_names())
def test_b091_no_block_leaves_before_its_descendants(policy: str) -> None:
    """B091: A of 8 pages, head and tail used unequally often; victims are tails, and nothing gets unreachable."""
    engine = Engine(page_count=24, policy=make_policy(policy))
    prompts = [A, [*A[:16], *range(50, 58)], [*A[:8], *range(70, 78)], list(range(80, 96))]
    for prompt in prompts:
        engine.serve(prompt)
    for _ in range(100):
        engine.serve(A[:17])  # only the head
    for _ in range(3):
        engine.serve(prompts[3])
    while engine.store.stats().evictable_pages:
        before = [engine.cached(prompt) for prompt in prompts]
        engine.evict(1)
        after = [engine.cached(prompt) for prompt in prompts]
        reachable = {
            tuple(prompt[:end]) for prompt, hit in zip(prompts, after, strict=True) for end in range(4, hit + 1, 4)
        }
        assert len(reachable) == engine.store.stats().cached_pages, "pages that no prompt can reach"
        lost = [had - has for had, has in zip(before, after, strict=True)]
        assert set(lost) == {0, 4}, "one eviction took more than one tail"
        engine.check()


@pytest.mark.parametrize("policy", policy_names())
def test_b091_every_split_of_a_path_keeps_head_after_tail(policy: str) -> None:
    """B091: equal ages: where a path was cut, by whatever prompts, must not let its head go first."""
    for cuts in itertools.product([False, True], repeat=3):
        engine = Engine(page_count=12, policy=make_policy(policy))
        engine.serve(A[:16])
        for cut, at in zip(cuts, (4, 8, 12), strict=True):
            if cut:
                engine.begin([*A[:at], 99]).abandon()
        for left in (12, 8, 4, 0):
            engine.evict(1)
            assert engine.cached(A) == left
        engine.check_quiet()


@pytest.mark.parametrize("policy", policy_names())
def test_b092_a_request_is_one_use_however_many_steps_it_takes(policy: str) -> None:
    """B092: one request decodes 1 000 steps on A, two requests use B once each: uses are counted 1 and 2."""
    watched = WatchedPolicy(make_policy(policy))
    engine = Engine(page_count=512, policy=watched)
    with engine.begin(A[:8], request_id="A") as a:
        for at in range(1000):
            a.decode([at])
            if at == 300:
                a.park()
                a.resume()
        for turn in range(2):
            engine.serve(_one_page(0), request_id=f"B{turn}")
        engine.begin(_one_page(0), request_id="B refused").abandon()
    assert watched.used_by == ["B0", "B1", "A"]
    assert engine.store.stats().policy == policy
    engine.check_quiet()


#: Which of the prompts 0..14 the scenario of B093 and B094 leaves. A new policy belongs here.
_LEFT = {
    "lru": {0, *range(6, 15)},
    "fifo": set(range(5, 15)),
}


@pytest.mark.parametrize("policy", policy_names())
def test_b093_and_b094_hits_move_what_the_policy_says_they_move(policy: str) -> None:
    """B093, B094: 10 one-page prompts, 100 hits on #0, 5 prompts more: LRU keeps #0, FIFO does not."""
    assert policy in _LEFT, f"say here which prompts {policy} keeps"
    engine = Engine(page_count=12, policy=make_policy(policy), retained_page_count_max=10)
    for number in range(10):
        engine.serve(_one_page(number))
    assert _survivors(engine, range(10)) == set(range(10))
    for _ in range(100):
        engine.serve(_one_page(0))
    for number in range(10, 15):
        engine.serve(_one_page(number))
    assert engine.store.stats().policy == policy
    assert _survivors(engine, range(15)) == _LEFT[policy]
    engine.check_quiet()


def test_b093_no_two_policies_are_the_same_in_disguise() -> None:
    """B093: a policy that never does anything shows as one with the victims of another."""
    assert len(set(map(frozenset, _LEFT.values()))) == len(_LEFT)


@pytest.mark.parametrize("policy", policy_names())
def test_b093_a_match_that_was_refused_or_broke_off_renews_nothing(policy: str) -> None:
    """B093, B094: only a request that ended well is a use; a look-up, an abandoned match and explain are none."""
    engine = Engine(page_count=12, policy=make_policy(policy), retained_page_count_max=10)
    for number in range(10):
        engine.serve(_one_page(number))
    for _ in range(3):
        assert engine.cached(_one_page(0)) == 4
        engine.begin(_one_page(0)).abandon()
    for number in range(10, 15):
        engine.serve(_one_page(number))
    assert _survivors(engine, range(15)) == set(range(5, 15))
    engine.check_quiet()
