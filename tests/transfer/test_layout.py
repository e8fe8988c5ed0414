"""What a page looks like, and that two layouts whose bytes differ never have one fingerprint."""

from __future__ import annotations

import dataclasses
from itertools import combinations, permutations

import numpy as np
import pytest

from transfer import ElementType, Layout, LayoutError, NumpyPagePool, TransferError

_LAYOUT = Layout(layers=2, kv_heads=3, head_dim=5, block_tokens=7)


def test_a_page_holds_keys_and_values_of_all_layers() -> None:
    assert _LAYOUT.page_shape == (2, 2, 7, 3, 5)
    assert _LAYOUT.page_bytes == 2 * 2 * 7 * 3 * 5 * 2


def test_llama_3_1_8b_has_pages_of_two_mebibytes() -> None:
    assert Layout(layers=32, kv_heads=8, head_dim=128, block_tokens=16).page_bytes == 2 << 20


@pytest.mark.parametrize("element", ElementType)
def test_the_pages_of_a_pool_have_the_bytes_that_the_layout_says(element: ElementType) -> None:
    layout = dataclasses.replace(_LAYOUT, element=element)
    pool = NumpyPagePool(layout, page_count=3)
    assert pool.pages[0].nbytes == layout.page_bytes
    assert pool.pages.shape == (3, *layout.page_shape)
    assert pool.pages.dtype.kind == "u"


def test_layouts_that_differ_anywhere_have_different_fingerprints() -> None:
    sizes = [Layout(layers=a, kv_heads=b, head_dim=c, block_tokens=d) for a, b, c, d in permutations((1, 2, 12, 21))]
    elements = [dataclasses.replace(_LAYOUT, element=element) for element in ElementType]
    groups = [dataclasses.replace(_LAYOUT, group=group) for group in (1, 2)]
    for left, right in combinations([*sizes, *elements, *groups], 2):
        assert left.fingerprint != right.fingerprint, (left, right)


def test_equal_layouts_have_equal_fingerprints() -> None:
    assert dataclasses.replace(_LAYOUT).fingerprint == _LAYOUT.fingerprint
    assert _LAYOUT.fingerprint == "0eda456f9fd0d6493772b2e986569baa"


@pytest.mark.parametrize("name", ["layers", "kv_heads", "head_dim", "block_tokens"])
@pytest.mark.parametrize("value", [0, -1, 1.0, 2.5, True, "2", None, np.float32(2)])
def test_a_size_that_is_none_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(LayoutError, match=name):
        dataclasses.replace(_LAYOUT, **{name: value})


@pytest.mark.parametrize(
    "fields", [{"element": "bfloat16"}, {"element": None}, {"group": -1}, {"group": "a"}, {"group": True}]
)
def test_other_fields_are_checked_too(fields: dict[str, object]) -> None:
    with pytest.raises(LayoutError, match=next(iter(fields))):
        dataclasses.replace(_LAYOUT, **fields)


def test_its_errors_are_of_this_package_and_plain_value_errors() -> None:
    assert issubclass(LayoutError, TransferError)
    assert issubclass(LayoutError, ValueError)
