"""Least recently used: what an abandoned request leaves, and that only the end of a request counts as use."""

from __future__ import annotations

from collections.abc import Sequence

from eviction import WHOLE_RUN, LruPolicy
from tests.support.forest import Facts, Forest

Prefix = tuple[int, ...]


def serve(forest: Forest, prompt: Sequence[int]) -> None:
    request = forest.begin(prompt)
    forest.extend(request, prompt[request.matched :])
    forest.release(request)


def test_runs_leave_as_a_whole_in_order_of_their_last_use() -> None:
    policy = LruPolicy[str]()
    for key in ("a", "b", "c"):
        policy.insert(key, first_block=0, block_count=1, ghost_id=0)
        policy.offer(key)
    policy.used(Facts(), ["a"])
    assert list(policy.victims()) == [("b", WHOLE_RUN), ("c", WHOLE_RUN), ("a", WHOLE_RUN)]
    assert repr(policy) == "<LruPolicy runs=3 offered=3 aside=0>"


def test_decoding_does_not_count_as_use() -> None:
    """B092: one request with a thousand steps counted as a thousand uses."""
    forest = Forest(LruPolicy())
    decoding = forest.begin((1,))
    forest.extend(decoding, (1,))
    serve(forest, (2, 2))
    for _ in range(999):
        forest.extend(decoding, (1,))
    forest.release(decoding, used=False)
    assert forest.evict(1000) == [(1,) * depth for depth in range(1000, 0, -1)]


def test_an_abandoned_request_renews_nothing_that_it_matched() -> None:
    forest = Forest(LruPolicy())
    serve(forest, (1, 1, 1))
    serve(forest, (2, 2))
    abandoned = forest.begin((1, 1))
    assert abandoned.matched == 2
    assert forest.evict(3) == [(1, 1, 1), (2, 2), (2,)]
    forest.release(abandoned, used=False)
    serve(forest, (3,))
    assert forest.evict(3) == [(1, 1), (1,), (3,)]


def test_an_abandoned_newcomer_is_as_old_as_its_insertion() -> None:
    forest = Forest(LruPolicy())
    serve(forest, (1,))
    abandoned = forest.begin((1, 2))
    forest.extend(abandoned, (2,))
    serve(forest, (3,))
    forest.release(abandoned, used=False)
    assert forest.evict(3) == [(1, 2), (1,), (3,)]


def test_a_run_in_transfer_takes_the_time_of_its_use() -> None:
    forest = Forest(LruPolicy())
    serve(forest, (1,))
    transfer = forest.begin((1,))
    serve(forest, (1,))
    serve(forest, (2,))
    for _ in range(3):
        assert [key for key, _ in forest.policy.victims()] == [forest.find((2,))]
    forest.release(transfer, used=False)
    assert forest.evict(2) == [(1,), (2,)]


def test_runs_of_one_request_merge_and_others_do_not() -> None:
    policy = LruPolicy[str]()
    policy.insert("upper", first_block=0, block_count=2, ghost_id=0)
    policy.insert("key", first_block=2, block_count=2, ghost_id=1)
    assert not policy.can_merge("upper", "key")
    policy.used(Facts(), ["upper", "key"])
    assert policy.can_merge("upper", "key")
    policy.used(Facts(), ["upper"])
    assert not policy.can_merge("upper", "key")
