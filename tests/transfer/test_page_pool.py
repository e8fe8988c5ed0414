"""Pages by number: what is copied where, and that a wrong number copies nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.stamps import Content, stamped_pages
from transfer import ElementType, Layout, LayoutError, NumpyPagePool, PageError, VirtualPagePool

_PAGES = 6
_LAYOUT = Layout(layers=2, kv_heads=1, head_dim=3, block_tokens=4, element=ElementType.FLOAT16)


@pytest.fixture
def pool() -> NumpyPagePool:
    pool = NumpyPagePool(_LAYOUT, page_count=_PAGES)
    pool.pages[:] = np.arange(pool.pages.size, dtype=np.uint16).reshape(pool.pages.shape)
    return pool


def _buffer(count: int, fill: int = 0) -> np.ndarray:
    return np.full((count, *_LAYOUT.page_shape), fill, np.uint16)


def _distinct(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 1 << 16, (count, *_LAYOUT.page_shape), np.uint16)


@pytest.mark.parametrize(
    "ids", [[0], [5, 0, 3], list(range(_PAGES)), np.array([4, 1]), np.array([2], np.uint64), (1, 2)]
)
def test_pages_come_out_in_the_order_of_their_numbers(pool: NumpyPagePool, ids: object) -> None:
    out = _buffer(len(ids))
    pool.gather(ids, out)
    assert np.array_equal(out, pool.pages[list(ids)])


@pytest.mark.parametrize("ids", [[0], [5, 0, 3], np.array([4, 1], np.int32)])
def test_pages_go_in_where_they_belong_and_nowhere_else(pool: NumpyPagePool, ids: object) -> None:
    before, source = pool.pages.copy(), _distinct(len(ids))
    pool.scatter(ids, source)
    assert np.array_equal(pool.pages[list(ids)], source)
    others = [page for page in range(_PAGES) if page not in list(ids)]
    assert np.array_equal(pool.pages[others], before[others])


def test_what_was_scattered_is_gathered(pool: NumpyPagePool) -> None:
    source, out = _distinct(3), _buffer(3)
    pool.scatter([4, 0, 2], source)
    pool.gather([4, 0, 2], out)
    assert np.array_equal(out, source)
    source[:] = 0
    assert out.any(), "a copy, not a view"


def test_no_page_is_no_copy(pool: NumpyPagePool) -> None:
    before = pool.pages.copy()
    pool.gather([], _buffer(0))
    pool.scatter([], _buffer(0))
    assert np.array_equal(pool.pages, before)


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param([-1], id="negative: numpy would take the last page"),
        pytest.param([_PAGES], id="past the end: XLA would drop it without a word"),
        pytest.param([0, _PAGES], id="the second past the end"),
        pytest.param([2**40], id="huge"),
        pytest.param(np.array([2**64 - 1], np.uint64), id="huge and unsigned"),
        pytest.param([1, 1], id="named twice"),
        pytest.param([1.0], id="a float"),
        pytest.param([True], id="a bool"),
        pytest.param([None], id="nothing"),
        pytest.param(["1"], id="a string"),
        pytest.param([[0], [1]], id="two rows"),
    ],
)
def test_a_wrong_number_copies_nothing(pool: NumpyPagePool, ids: object) -> None:
    before, out = pool.pages.copy(), _buffer(len(ids), fill=7)
    with pytest.raises(PageError):
        pool.gather(ids, out)
    with pytest.raises(PageError):
        pool.scatter(ids, _buffer(len(ids), fill=9))
    assert (out == 7).all()
    assert np.array_equal(pool.pages, before)


@pytest.mark.parametrize(
    "buffer",
    [
        pytest.param(_buffer(1), id="too few pages"),
        pytest.param(_buffer(3), id="too many pages"),
        pytest.param(_buffer(2).astype(np.float16), id="the element type, not its words"),
        pytest.param(_buffer(2).astype(np.uint32), id="wider words"),
        pytest.param(_buffer(2).reshape(2, -1), id="flat"),
        pytest.param(_buffer(2).swapaxes(2, 4), id="another order of axes"),
    ],
)
def test_a_buffer_that_does_not_fit_is_refused(pool: NumpyPagePool, buffer: np.ndarray) -> None:
    before, kept = pool.pages.copy(), buffer.copy()
    with pytest.raises(PageError, match="buffer must be"):
        pool.gather([0, 1], buffer)
    with pytest.raises(PageError, match="buffer must be"):
        pool.scatter([0, 1], buffer)
    assert np.array_equal(buffer, kept)
    assert np.array_equal(pool.pages, before)


def test_one_page_is_copied_onto_another(pool: NumpyPagePool) -> None:
    before = pool.pages.copy()
    pool.copy_within(2, 5)
    assert np.array_equal(pool.pages[5], before[2])
    assert np.array_equal(pool.pages[:5], before[:5])


@pytest.mark.parametrize(("source", "target"), [(1, 1), (-1, 0), (0, -1), (0, _PAGES), (_PAGES, 0), (0.0, 1)])
def test_a_page_is_not_copied_from_or_to_nowhere(pool: NumpyPagePool, source: object, target: object) -> None:
    before = pool.pages.copy()
    with pytest.raises(PageError):
        pool.copy_within(source, target)
    assert np.array_equal(pool.pages, before)


@pytest.mark.parametrize("count", [0, -1, 1.5, True, None, "3"])
def test_a_pool_has_a_whole_number_of_pages(count: object) -> None:
    with pytest.raises(LayoutError, match="page_count"):
        NumpyPagePool(_LAYOUT, page_count=count)
    with pytest.raises(LayoutError, match="page_count"):
        VirtualPagePool(page_count=count, block_tokens=4)
    with pytest.raises(LayoutError, match="block_tokens"):
        VirtualPagePool(page_count=4, block_tokens=count)


def test_pools_say_their_sizes_as_plain_numbers() -> None:
    real, virtual = (
        NumpyPagePool(_LAYOUT, page_count=np.int64(3)),
        VirtualPagePool(page_count=np.int32(3), block_tokens=4),
    )
    assert (real.page_count, real.block_tokens) == (virtual.page_count, virtual.block_tokens) == (3, 4)
    assert type(virtual.page_count) is type(real.page_count) is int


def test_a_stamp_catches_every_kind_of_wrong_page() -> None:
    pages = stamped_pages(page_count=8, block_tokens=2)
    content = Content(b"space", [1, 2, 3, 4, 5, 6])
    table = np.array([3, 1, 4], np.int32)
    pages.write(table, content, start=0, end=3)
    pages.check(table, content, end=3)
    wrong = {
        "another namespace": (table, Content(b"other", [1, 2, 3, 4, 5, 6])),
        "another token long before": (table, Content(b"space", [9, 2, 3, 4, 5, 6])),
        "pages swapped": (table[::-1], content),
        "a page of nobody": (np.array([3, 1, 7], np.int32), content),
    }
    for reason, (pages_read, expected) in wrong.items():
        with pytest.raises(AssertionError, match="wrong bytes"):
            pages.check(pages_read, expected, end=3)
        assert reason
    swapped = pages.pool.pages[4].copy()
    for axis in (0, 1):  # layers, then K and V
        pages.pool.pages[4] = np.flip(swapped, axis)
        with pytest.raises(AssertionError, match=r"blocks \[2\]"):
            pages.check(table, content, end=3)
