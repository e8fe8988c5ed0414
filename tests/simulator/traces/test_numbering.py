"""Numbers for ids: dense by first sight, and one prefix an id."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.traces.numbering import BrokenPrefix, PathNumbers, TokenNumbers
from simulator.traces.regroup import Regroup

words = st.lists(st.lists(st.integers(0, 3), max_size=8), max_size=12)


def array(ids: list[int]) -> np.ndarray:
    return np.array(ids, np.int64)


def tree_ids(paths: list[list[int]]) -> list[list[int]]:
    """Ids that name whole prefixes: scattered, but equal exactly where the words so far are equal."""
    names: dict[tuple[int, ...], int] = {}
    return [
        [names.setdefault(tuple(path[: end + 1]), (len(names) * 7919) % 100_003) for end in range(len(path))]
        for path in paths
    ]


@settings(deadline=None)
@given(words)
def test_numbers_count_prefixes_by_first_sight(paths: list[list[int]]) -> None:
    numbers, expected = PathNumbers(), {}
    for path, ids in zip(paths, tree_ids(paths), strict=True):
        wanted = [expected.setdefault(tuple(path[: end + 1]), len(expected)) for end in range(len(path))]
        assert numbers.of(array(ids)).tolist() == wanted
    assert numbers.count == len(expected)


@settings(deadline=None)
@given(words)
def test_rechaining_turns_block_hashes_into_prefixes(paths: list[list[int]]) -> None:
    """Ids that name a block's own content, numbered by their path, are the prefixes of the content."""
    numbers, expected = PathNumbers(rechain=True), {}
    for path in paths:
        wanted = [expected.setdefault(tuple(path[: end + 1]), len(expected)) for end in range(len(path))]
        assert numbers.of(array(path)).tolist() == wanted


@settings(deadline=None)
@given(words, st.integers(1, 3))
def test_tokens_are_numbered_as_their_prefixes(paths: list[list[int]], block_tokens: int) -> None:
    numbers, expected = TokenNumbers(block_tokens), {}
    for path in paths:
        ends = range(block_tokens, len(path) + 1, block_tokens)
        wanted = [expected.setdefault(tuple(path[:end]), len(expected)) for end in ends]
        assert numbers.of(np.array(path, np.int32)).tolist() == wanted
    assert numbers.count == len(expected)


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([[1, 2], [3, 2]], "id 2 follows 3 here, but 1 earlier"),
        ([[1, 2], [2]], "id 2 follows nothing here, but 1 earlier"),
        ([[1], [2, 1]], "id 1 follows 2 here, but nothing earlier"),
        ([[1, 2, 3], [1, 3]], "id 3 follows 1 here, but 2 earlier"),
        ([[1, 2, 1]], "id 1 follows 2 here, but nothing earlier"),
        ([[4, 4]], "id 4 follows 4 here, but nothing earlier"),
        ([[1, 2], [1, 5, 2]], "id 2 follows 5 here, but 1 earlier"),
        ([[1, 2, 3], [9], [1, 2, 4, 3]], "id 3 follows 4 here, but 2 earlier"),
    ],
)
def test_an_id_with_two_predecessors_or_positions_is_found(paths: list[list[int]], message: str) -> None:
    numbers = PathNumbers()
    for path in paths[:-1]:
        numbers.of(array(path))
    with pytest.raises(BrokenPrefix, match=message):
        numbers.of(array(paths[-1]))


def test_a_new_scope_makes_equal_ids_other_blocks() -> None:
    numbers = PathNumbers()
    assert numbers.of(array([1, 2])).tolist() == [0, 1]
    numbers.new_scope()
    assert numbers.of(array([2, 1])).tolist() == [2, 3]
    assert numbers.of(array([2, 1])).tolist() == [2, 3]


def test_ids_beyond_a_signed_word() -> None:
    numbers = PathNumbers()
    assert numbers.of(np.array([2**64 - 1, 5], np.uint64)).tolist() == [0, 1]
    assert numbers.of(np.array([2**64 - 1, 6], np.uint64)).tolist() == [0, 2]


def names(numbers: list[int], input_len: int, *, id_tokens: int, block_tokens: int, started: bool) -> list[int]:
    regroup = Regroup(id_tokens=id_tokens, block_tokens=block_tokens, started=started)
    return regroup.names(np.array(numbers, np.int32), input_len).tolist()


def test_coarser_blocks_keep_every_kth_id_and_a_started_last_one() -> None:
    ids = list(range(10, 20))
    assert names(ids, 640, id_tokens=64, block_tokens=256, started=False) == [13, 17]
    assert names(ids, 640, id_tokens=64, block_tokens=256, started=True) == [13, 17, 19]
    assert names(ids, 620, id_tokens=64, block_tokens=256, started=True) == [13, 17, 19]
    assert names(ids[:8], 512, id_tokens=64, block_tokens=256, started=True) == [13, 17]
    # The tenth is partial and dropped, and with it the started block of nine.
    assert names(ids, 620, id_tokens=64, block_tokens=192, started=False) == [12, 15, 18]


def test_finer_blocks_split_ids_up_to_the_end_of_the_prompt() -> None:
    assert names([0, 1], 8, id_tokens=4, block_tokens=2, started=True) == [0, 1, 2, 3]
    assert names([0, 1], 7, id_tokens=4, block_tokens=2, started=True) == [0, 1, 2, 3]
    assert names([0, 1], 6, id_tokens=4, block_tokens=2, started=True) == [0, 1, 2]
    assert names([0, 1], 5, id_tokens=4, block_tokens=2, started=True) == [0, 1, 2]
    # Full blocks only: what a partial hashed block holds is not shared.
    assert names([0, 1], 7, id_tokens=4, block_tokens=2, started=False) == [0, 1]


def test_the_same_size_drops_only_the_started_block() -> None:
    assert names([5, 6], 6, id_tokens=4, block_tokens=4, started=True) == [5, 6]
    assert names([5, 6], 6, id_tokens=4, block_tokens=4, started=False) == [5]
    assert names([5, 6], 8, id_tokens=4, block_tokens=4, started=False) == [5, 6]
