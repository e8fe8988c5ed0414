"""First in, first out over runs is first in, first out over blocks, parents after their children."""

from __future__ import annotations

from hypothesis import given

from eviction import FifoPolicy
from tests.support.block_lists import BlockList
from tests.support.forest import Forest
from tests.support.forest_scripts import Step, play, scripts


@given(scripts())
def test_victims_are_those_of_a_list_of_blocks(script: list[Step]) -> None:
    assert play(script, Forest(FifoPolicy())) == play(script, Forest(BlockList(renews=False)), check=False)
