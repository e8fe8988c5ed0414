"""The optimum is one: by exhaustion where that is possible, by MIN on single blocks, and against every policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eviction import OptimalPolicy, make_policy, policy_names
from tests.support.block_lists import min_hits
from tests.support.forest import Foreseen, replay
from tests.support.forest_scripts import prompts, traces

Prefix = tuple[int, ...]
Prompts = Sequence[tuple[int, ...]]


def names_of(prompt: Sequence[int]) -> list[Prefix]:
    return [tuple(prompt[:end]) for end in range(1, len(prompt) + 1)]


def closed_choices(blocks: frozenset[Prefix], capacity: int) -> Iterable[frozenset[Prefix]]:
    """Every set of at most so many blocks that keeps the parent of each of its blocks."""
    for size in range(min(capacity, len(blocks)) + 1):
        for choice in combinations(sorted(blocks), size):
            chosen = frozenset(choice)
            if all(len(block) == 1 or block[:-1] in chosen for block in chosen):
                yield chosen


def best_hits(requests: Prompts, capacity: int) -> int:
    """The most blocks that any choice of what to keep after each request can hit."""
    states = {frozenset[Prefix](): 0}
    for prompt in requests:
        following: dict[frozenset[Prefix], int] = {}
        for cached, hits in states.items():
            hits += sum(block in cached for block in names_of(prompt))
            for kept in closed_choices(cached | frozenset(names_of(prompt)), capacity):
                following[kept] = max(following.get(kept, 0), hits)
        states = following
    return max(states.values())


@given(st.lists(prompts(symbols=2, longest=3), min_size=1, max_size=6), st.integers(0, 3))
def test_no_choice_of_what_to_keep_hits_more(requests: Prompts, capacity: int) -> None:
    assert sum(replay(OptimalPolicy(Foreseen(requests)), requests, capacity)) == best_hits(requests, capacity)


@given(traces(), st.integers(0, 20))
def test_hits_are_those_of_min_on_single_blocks(requests: Prompts, capacity: int) -> None:
    assert replay(OptimalPolicy(Foreseen(requests)), requests, capacity) == min_hits(requests, capacity)


@pytest.mark.parametrize("name", policy_names())
@given(requests=traces(), capacity=st.integers(0, 20))
def test_no_policy_hits_more(name: str, requests: Prompts, capacity: int) -> None:
    assert sum(replay(make_policy(name), requests, capacity)) <= sum(
        replay(OptimalPolicy(Foreseen(requests)), requests, capacity)
    )
