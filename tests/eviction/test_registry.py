"""Policies by name."""

from __future__ import annotations

import pytest

import eviction
from eviction import UnknownPolicyError, make_policy, policy_names


def test_every_name_makes_a_fresh_policy_of_that_name() -> None:
    assert list(policy_names()) == sorted(policy_names())
    assert {"fifo", "lru"} <= set(policy_names())
    for name in policy_names():
        first, second = make_policy(name), make_policy(name)
        assert first.name == name
        first.insert("run", first_block=0, block_count=1, ghost_id=0)
        second.insert("run", first_block=0, block_count=1, ghost_id=0)


@pytest.mark.parametrize(("name", "nearest"), [("lur", "lru"), ("LRU", "lru"), ("fifoo", "fifo"), ("zzz", None)])
def test_an_unknown_name_is_told_the_nearest(name: str, nearest: str | None) -> None:
    with pytest.raises(UnknownPolicyError) as caught:
        make_policy(name)
    assert isinstance(caught.value, ValueError)
    assert caught.value.name == name
    assert caught.value.nearest == nearest
    assert caught.value.known == policy_names()
    assert repr(name) in str(caught.value)
    assert ("did you mean" in str(caught.value)) == (nearest is not None)
    assert all(known in str(caught.value) for known in policy_names())


def test_the_optimum_says_what_it_needs() -> None:
    with pytest.raises(UnknownPolicyError, match="oracle"):
        make_policy("optimal")


def test_the_package_exports_what_it_lists() -> None:
    assert all(hasattr(eviction, name) for name in eviction.__all__)
