"""What a size may look like, and how many blocks it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import SimulatorError
from simulator.sizes import SizeError, exact_tokens, format_tokens, parse_size


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("512", 512),
        ("16K", 16 * 1024),
        ("16k", 16 * 1024),
        ("4M", 4 * 2**20),
        ("1G", 2**30),
        ("1.5M", 3 * 2**19),
        ("1.6M", 1_677_721),
        (" 4M ", 4 * 2**20),
        ("12345678901234567890", 12345678901234567890),
    ],
)
def test_suffixes_are_powers_of_two(text: str, tokens: int) -> None:
    assert parse_size(text).tokens == tokens


@pytest.mark.parametrize(
    ("text", "unique_blocks", "blocks"),
    [
        ("5%", 182_790, 9_139),
        ("100%", 43_924, 43_924),
        ("250%", 10, 25),
        ("0.5%", 1_000, 5),
        ("1%", 3, 1),
        ("0.001%", 0, 1),
        ("4M", 0, 8_192),
        ("1023", 7, 1),
    ],
)
def test_blocks_round_down_but_a_share_is_never_less_than_one(text: str, unique_blocks: int, blocks: int) -> None:
    assert parse_size(text).blocks(block_tokens=512, unique_blocks=unique_blocks) == blocks


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "M",
        "%",
        "-4M",
        "+4M",
        "4MB",
        "4MiB",
        "4 M",
        "1e6",
        "nan",
        "inf",
        "4T",
        "0",
        "0M",
        "0%",
        "0.3",
        "1,5M",
        "٤M",
    ],
)
def test_a_bad_size_is_refused_with_examples(text: str) -> None:
    with pytest.raises(SizeError) as caught:
        parse_size(text)
    message = str(caught.value)
    assert repr(text) in message
    assert "4M" in message
    assert "5%" in message
    assert caught.value.text == text
    assert isinstance(caught.value, SimulatorError)


def test_a_size_below_one_block_is_refused() -> None:
    with pytest.raises(SizeError, match="no block of 512 tokens"):
        parse_size("511").blocks(block_tokens=512, unique_blocks=100)


@given(st.decimals(min_value="0.01", max_value="1000", places=2), st.integers(1, 10**7))
def test_a_share_is_within_one_block_of_the_exact_product(percent: object, unique_blocks: int) -> None:
    blocks = parse_size(f"{percent}%").blocks(block_tokens=16, unique_blocks=unique_blocks)
    exact = float(str(percent)) / 100 * unique_blocks
    assert blocks == 1 or exact - 1 - 1e-6 <= blocks <= exact + 1e-6


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (0, "0"),
        (1_023, "1023"),
        (1_024, "1K"),
        (1_536, "1.5K"),
        (4 * 2**20, "4M"),
        (93_588_480, "89.3M"),
        (2**31, "2G"),
    ],
)
def test_tokens_are_shown_as_they_are_written(tokens: int, text: str) -> None:
    assert format_tokens(tokens) == text


@pytest.mark.parametrize(
    ("tokens", "text"),
    [(1_000, "1,000 tokens"), (1_024, "1,024 tokens (1K)"), (1_882_624, "1,882,624 tokens (1.8M)")],
)
def test_beside_the_rounded_size_stands_the_exact_one(tokens: int, text: str) -> None:
    assert exact_tokens(tokens) == text


@given(st.integers(1, 4_095), st.sampled_from("KMG"))
def test_a_whole_size_reads_back_from_what_is_shown(number: int, suffix: str) -> None:
    tokens = parse_size(f"{number}{suffix}").tokens
    assert tokens is not None
    shown = parse_size(format_tokens(tokens)).tokens
    assert shown is not None
    assert abs(shown - tokens) <= tokens / 20
