"""Pages go out once and come back once; a call that asks for anything else changes nothing."""

from __future__ import annotations

import random
from array import array

import numpy as np
import pytest

from kvstore import BlockAllocator, ConfigError, InvalidRequest, OutOfPages


def test_a_fresh_pool_hands_out_each_page_once() -> None:
    allocator = BlockAllocator(10)
    assert (allocator.page_count, allocator.free_count) == (10, 10)
    taken = [*allocator.take(3), *allocator.take(0), *allocator.take(7)]
    assert taken == list(range(10))
    assert allocator.free_count == 0
    allocator.check_invariants()


def test_pages_that_came_back_go_out_again() -> None:
    allocator = BlockAllocator(4)
    allocator.take(4)
    allocator.give([2])
    allocator.give(array("i", [0, 3]))
    assert allocator.free_count == 3
    assert sorted(allocator.take(3)) == [0, 2, 3]
    allocator.check_invariants()


@pytest.mark.parametrize(
    "pages",
    [[1, 2], (1, 2), array("i", [1, 2]), array("q", [1, 2]), np.array([1, 2], np.uint64), np.array([2, 1], np.int8)],
)
def test_pages_come_back_in_any_container(pages: object) -> None:
    allocator = BlockAllocator(4)
    allocator.take(4)
    allocator.give(pages)
    assert allocator.free_count == 2
    assert [allocator.is_out(page) for page in range(4)] == [True, False, False, True]
    allocator.check_invariants()


@pytest.mark.parametrize(
    "pages",
    [
        pytest.param([0, 0], id="twice"),
        pytest.param([0, 1, 2, 0], id="twice far apart"),
        pytest.param(array("i", [1, 1]), id="twice in an array"),
        pytest.param([0] * 9, id="more often than there are pages"),
        pytest.param([3], id="already free"),
        pytest.param(array("i", [3]), id="already free, alone in an array"),
        pytest.param([0, 3], id="one is already free"),
        pytest.param([-1], id="negative"),
        pytest.param(array("i", [-1]), id="negative, alone in an array"),
        pytest.param([0, 5], id="not of this pool"),
        pytest.param(array("i", [5]), id="not of this pool, alone in an array"),
        pytest.param([2**40], id="huge"),
        pytest.param(np.array([2**64 - 1], np.uint64), id="wraps to -1"),
        pytest.param([0.0], id="a float"),
        pytest.param(array("d", [0.0]), id="a float in an array"),
        pytest.param(array("d", [0.0, 1.0]), id="floats in an array"),
        pytest.param([True], id="a bool"),
        pytest.param(["0"], id="a string"),
        pytest.param([None], id="nothing"),
        pytest.param([[0], [1]], id="two rows"),
        pytest.param(np.array([0], object), id="objects"),
    ],
)
def test_a_wrong_page_is_refused_before_anything_changes(pages: object) -> None:
    allocator = BlockAllocator(5)
    allocator.take(3)
    with pytest.raises(InvalidRequest):
        allocator.give(pages)
    assert allocator.free_count == 2
    assert [allocator.is_out(page) for page in range(5)] == [True, True, True, False, False]
    allocator.check_invariants()
    allocator.give([0, 1, 2])
    assert allocator.free_count == 5


def test_a_refused_call_leaves_no_trace_for_the_next() -> None:
    allocator = BlockAllocator(6)
    allocator.take(6)
    with pytest.raises(InvalidRequest):
        allocator.give([4, 4])
    allocator.give([0, 1, 4])
    allocator.check_invariants()


def test_giving_nothing_back_is_nothing() -> None:
    allocator = BlockAllocator(3)
    for nothing in ([], (), array("i"), np.array([], np.int64), np.array([])):
        allocator.give(nothing)
    assert allocator.free_count == 3


@pytest.mark.parametrize("count", [1.0, 1.5, True, None, "1", -1, -(2**40), [1]])
def test_a_count_that_is_none_is_refused(count: object) -> None:
    allocator = BlockAllocator(3)
    with pytest.raises(InvalidRequest):
        allocator.take(count)
    assert allocator.free_count == 3


@pytest.mark.parametrize("count", [np.int32(2), np.uint8(2), np.int64(2)])
def test_a_count_may_be_a_numpy_integer(count: int) -> None:
    assert len(BlockAllocator(3).take(count)) == 2


@pytest.mark.parametrize("count", [3, 4, 2**62])
def test_more_than_there_are_is_refused_with_the_numbers(count: int) -> None:
    allocator = BlockAllocator(5)
    allocator.take(3)
    with pytest.raises(OutOfPages) as refused:
        allocator.take(count)
    assert (refused.value.needed, refused.value.free, refused.value.evictable) == (count, 2, 0)
    assert allocator.free_count == 2
    allocator.check_invariants()


@pytest.mark.parametrize("count", [0, -3])
def test_a_pool_has_at_least_one_page(count: int) -> None:
    with pytest.raises(InvalidRequest):
        BlockAllocator(count)


@pytest.mark.parametrize("count", [1.5, True, None, "4"])
def test_a_pool_has_a_whole_number_of_pages(count: object) -> None:
    with pytest.raises(InvalidRequest):
        BlockAllocator(count)


def test_an_empty_pool_is_a_matter_of_settings() -> None:
    with pytest.raises(ConfigError):
        BlockAllocator(0)


@pytest.mark.parametrize("page", [-1, 4, 2**40])
def test_a_page_of_another_pool_is_not_out(page: int) -> None:
    allocator = BlockAllocator(4)
    allocator.take(4)
    assert not allocator.is_out(page)


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_taking_and_giving_equals_a_set(seed: int) -> None:
    chance = random.Random(seed)
    allocator, out = BlockAllocator(50), set[int]()
    for _ in range(500):
        if chance.random() < 0.5:
            count = chance.randint(0, 50 - len(out))
            taken = allocator.take(count)
            assert len(set(taken)) == count
            assert out.isdisjoint(taken)
            out.update(taken)
        else:
            back = chance.sample(sorted(out), chance.randint(0, len(out)))
            allocator.give(array("i", back) if chance.random() < 0.5 else back)
            out.difference_update(back)
        assert allocator.free_count == 50 - len(out)
        assert all(allocator.is_out(page) == (page in out) for page in range(50))
    allocator.check_invariants()
