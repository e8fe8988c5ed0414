"""The offline optimum: what it asks its oracle, and what it makes of the answer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eviction import NEVER, OptimalPolicy
from tests.support.forest import Facts


class Told:
    """An oracle that says what the test told it, and counts how often it is asked."""

    def __init__(self, *answers: tuple[list[int], list[int]]) -> None:
        self._answers = answers
        self.asked: list[int] = []

    def segments(self, request_id: int) -> tuple[Sequence[int], Sequence[int]]:
        self.asked.append(request_id)
        return self._answers[request_id]


def optimal(oracle: Told, **runs: tuple[int, int]) -> OptimalPolicy[str]:
    """A policy that holds the runs, each given as ``[start, end)``."""
    policy = OptimalPolicy[str](oracle)
    for key, (start, end) in runs.items():
        policy.insert(key, first_block=start, block_count=end - start, ghost_id=0)
    return policy


def test_the_oracle_is_asked_once_for_a_path() -> None:
    oracle = Told(([2, 8], [5, 7]))
    policy = optimal(oracle, a=(0, 4), b=(4, 8))
    policy.used(Facts(request_id=0), ["a", "b"])
    assert oracle.asked == [0]


def test_a_run_is_taken_as_far_as_one_next_use_reaches() -> None:
    policy = optimal(Told(([2, 5, 8], [3, 6, NEVER])), run=(1, 8))
    policy.used(Facts(request_id=0), ["run"])
    policy.offer("run")
    assert list(policy.victims()) == [("run", 3)]
    policy.shrink("run", 1)
    assert list(policy.victims()) == [("run", 2)]
    policy.shrink("run", 2)
    assert list(policy.victims()) == [("run", 3)]
    policy.shrink("run", 3)
    assert list(policy.victims()) == [("run", 1)]
    assert repr(policy) == "<OptimalPolicy runs=1 offered=1>"


def test_the_farthest_next_use_goes_first_and_follows_the_tail() -> None:
    policy = optimal(Told(([2, 4], [1, 9]), ([4], [5])), a=(0, 4), b=(0, 4))
    policy.used(Facts(request_id=0), ["a"])
    policy.used(Facts(request_id=1), ["b"])
    policy.offer("a")
    policy.offer("b")
    assert list(policy.victims()) == [("a", 2), ("b", 4)]
    policy.shrink("a", 2)
    policy.check_invariants()
    assert list(policy.victims()) == [("b", 4), ("a", 2)]


def test_blocks_without_a_told_future_are_never_used_again() -> None:
    policy = optimal(Told(([2], [1]), ([2], [NEVER - 1])), generated=(0, 2), newcomer=(0, 2), other=(0, 2))
    policy.used(Facts(request_id=0), ["generated"])
    policy.used(Facts(request_id=1), ["other"])
    for key in ("other", "generated"):
        policy.offer(key)
    assert [key for key, _ in policy.victims()] == ["other", "generated"]
    policy.grow("generated", 3)
    policy.check_invariants()
    assert list(policy.victims()) == [("generated", 3), ("other", 2)]
    policy.remove("generated")
    policy.offer("newcomer")
    assert list(policy.victims()) == [("newcomer", 2), ("other", 2)]


def test_equal_runs_leave_in_the_order_of_their_offer() -> None:
    policy = optimal(Told(), a=(0, 1), b=(0, 1), c=(0, 1))
    for key in ("b", "c", "a"):
        policy.offer(key)
    assert [key for key, _ in policy.victims()] == ["b", "c", "a"]


def test_use_on_offer_ranks_again() -> None:
    policy = optimal(Told(([1], [7]), ([1], [3]), ([1], [9])), a=(0, 1), b=(0, 1))
    policy.used(Facts(request_id=0), ["a"])
    policy.used(Facts(request_id=1), ["b"])
    policy.offer("a")
    policy.offer("b")
    assert [key for key, _ in policy.victims()] == ["a", "b"]
    policy.used(Facts(request_id=2), ["b"])
    policy.check_invariants()
    assert [key for key, _ in policy.victims()] == ["b", "a"]


def test_only_runs_that_share_a_future_merge() -> None:
    policy = optimal(Told(([4], [2]), ([4], [2])), upper=(0, 2), key=(2, 4))
    policy.used(Facts(request_id=0), ["upper", "key"])
    assert policy.can_merge("upper", "key")
    policy.used(Facts(request_id=1), ["upper"])
    assert not policy.can_merge("upper", "key")


@pytest.mark.parametrize("request_id", [None, "seven"])
def test_requests_must_carry_their_ordinal(request_id: str | None) -> None:
    policy = optimal(Told(), a=(0, 1))
    with pytest.raises(AssertionError, match="ordinal"):
        policy.used(Facts(request_id=request_id), ["a"])


@pytest.mark.parametrize("block_count", [4, 5])
def test_a_run_does_not_shrink_or_split_away(block_count: int) -> None:
    policy = optimal(Told(), run=(0, 4))
    with pytest.raises(AssertionError):
        policy.shrink("run", block_count)
    with pytest.raises(AssertionError):
        policy.split("run", "upper", block_count, ghost_id=1)
