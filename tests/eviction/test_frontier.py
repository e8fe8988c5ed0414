"""The heap that forgets lazily, against a sorted list."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from eviction.frontier import Frontier

steps = st.lists(st.tuples(st.sampled_from(["turn", "turn", "turn", "walk"]), st.integers(0, 9), st.integers(0, 3)))


@given(steps)
def test_walks_are_those_of_a_sorted_list(steps: list[tuple[str, int, int]]) -> None:
    frontier = Frontier[int]()
    offered: dict[int, int] = {}  # key -> rank, in order of offer
    for kind, key, rank in steps:
        coldest_first = sorted(offered.items(), key=lambda item: item[1])
        if kind == "walk":
            assert list(islice(frontier.walk(), key)) == coldest_first[:key]
        elif key in frontier:
            frontier.withdraw(key)
            del offered[key]
        else:
            frontier.offer(key, rank)
            offered[key] = rank
        frontier.check_invariants()
        assert len(frontier) == len(offered)
    assert list(frontier.walk()) == sorted(offered.items(), key=lambda item: item[1])


def test_order_survives_the_sweeps_of_many_stale_entries() -> None:
    frontier = Frontier[int]()
    for key in range(200):
        frontier.offer(key, -key)
    for turn in range(2000):
        key = turn * 37 % 200
        frontier.withdraw(key)
        frontier.offer(key, turn * 91 % 1000)
        if turn % 7 == 0:
            list(islice(frontier.walk(), turn % 50))
        frontier.check_invariants()
    ranks = [rank for _, rank in frontier.walk()]
    assert len(ranks) == 200
    assert ranks == sorted(ranks)
