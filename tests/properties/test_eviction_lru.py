"""Least recently used over runs is least recently used over blocks, whatever is split, merged, pinned or abandoned."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eviction import LruPolicy
from tests.support.block_lists import BlockList
from tests.support.forest import Forest, replay
from tests.support.forest_scripts import Step, play, scripts, traces


@given(scripts())
def test_victims_are_those_of_a_list_of_blocks(script: list[Step]) -> None:
    assert play(script, Forest(LruPolicy())) == play(script, Forest(BlockList(renews=True)), check=False)


@given(traces(), st.integers(0, 12), st.integers(1, 12))
def test_a_larger_cache_hits_no_less(requests: list[tuple[int, ...]], capacity: int, more: int) -> None:
    small = replay(LruPolicy(), requests, capacity)
    large = replay(LruPolicy(), requests, capacity + more)
    assert all(hit_large >= hit_small for hit_small, hit_large in zip(small, large, strict=True))
