"""First in, first out: the age of a run is that of its insertion, whatever happens later."""

from __future__ import annotations

from eviction import WHOLE_RUN, FifoPolicy
from tests.support.forest import Facts


def fifo(*keys: str) -> FifoPolicy[str]:
    policy = FifoPolicy[str]()
    for key in keys:
        policy.insert(key, first_block=0, block_count=2, ghost_id=0)
    return policy


def test_neither_use_nor_growth_nor_a_late_offer_renews() -> None:
    policy = fifo("a", "b", "c")
    for key in ("b", "c", "a"):
        policy.offer(key)
    policy.used(Facts(), ["a"])
    policy.grow("a", 3)
    assert list(policy.victims()) == [("a", WHOLE_RUN), ("b", WHOLE_RUN), ("c", WHOLE_RUN)]
    assert repr(policy) == "<FifoPolicy runs=3 offered=3>"


def test_a_parent_keeps_its_age_while_its_children_live() -> None:
    policy = fifo("parent", "other", "child")
    policy.offer("other")
    policy.offer("child")
    policy.remove("child")
    policy.offer("parent")
    assert [key for key, _ in policy.victims()] == ["parent", "other"]


def test_only_what_was_inserted_as_one_merges() -> None:
    policy = fifo("first", "second")
    policy.used(Facts(), ["first", "second"])
    assert not policy.can_merge("first", "second")
    policy.split("second", "upper", 1, ghost_id=1)
    assert policy.can_merge("upper", "second")
