"""What counts as a prompt, what is refused, and that nobody can change one afterwards."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import numpy as np
import pytest

from kvstore import BlockFormat, InvalidRequest, MediaSpan, Prompt

_TOKENS = [0, 1, 2, 5, 127]
_TOP = 2**31 - 1
_DIGEST = bytes(range(32))
_BLOCKS = BlockFormat.of_tokens(4)

_CONTAINERS: dict[str, Callable[[list[int]], object]] = {
    "list": list,
    "tuple": tuple,
    "array of int32": lambda tokens: array("i", tokens),
    "array of uint32": lambda tokens: array("I", tokens),
    "array of int64": lambda tokens: array("q", tokens),
    "memoryview": lambda tokens: memoryview(array("i", tokens)),
    "list of numpy integers": lambda tokens: [np.int64(token) for token in tokens],
    "strided": lambda tokens: np.repeat(np.array(tokens, np.int32), 2)[::2],
    "read-only": lambda tokens: np.frombuffer(np.array(tokens, np.int32).tobytes(), np.int32),
} | {
    dtype: lambda tokens, dtype=dtype: np.array(tokens, dtype)
    for dtype in ("i1", "u1", "i2", "u2", "<i4", ">i4", "<u4", ">u4", "i8", "u8")
}


@pytest.mark.parametrize("container", _CONTAINERS)
def test_a_token_is_a_number_whatever_holds_it(container: str) -> None:
    prompt = Prompt.of_tokens(_CONTAINERS[container](_TOKENS))
    assert prompt.token_count == len(_TOKENS)
    assert prompt.block_symbols(_BLOCKS) == np.array(_TOKENS, "<u4").tobytes()


@pytest.mark.parametrize("container", ["list", "tuple", "array of int64", "<i4", "<u4", "i8", "u8", "memoryview"])
def test_the_largest_token_is_taken(container: str) -> None:
    prompt = Prompt.of_tokens(_CONTAINERS[container]([0, _TOP]))
    assert prompt.block_symbols(_BLOCKS) == np.array([0, _TOP], "<u4").tobytes()


@pytest.mark.parametrize(
    "tokens",
    [
        pytest.param([1.0, 2.0], id="floats"),
        pytest.param([1, 2, 2.0], id="one float"),
        pytest.param([True, False], id="bools"),
        pytest.param([5, 6, True], id="one bool"),
        pytest.param([np.True_, 3], id="a numpy bool"),
        pytest.param([np.float32(1)], id="a numpy float"),
        pytest.param("123", id="a string"),
        pytest.param(["1", "2"], id="strings"),
        pytest.param(b"123", id="bytes"),
        pytest.param(bytearray(b"123"), id="bytearray"),
        pytest.param([b"1"], id="a list of bytes"),
        pytest.param(None, id="nothing"),
        pytest.param([None], id="a list of nothing"),
        pytest.param(5, id="a number"),
        pytest.param([[1, 2], [3, 4]], id="nested"),
        pytest.param([1, [2]], id="partly nested"),
        pytest.param({1, 2, 3}, id="a set"),
        pytest.param({1: 2}, id="a dict"),
        pytest.param(iter([1, 2]), id="an iterator"),
        pytest.param(np.array([1.0, 2.0]), id="a float array"),
        pytest.param(np.array([True]), id="a bool array"),
        pytest.param(np.array([1, 2], object), id="an object array"),
        pytest.param(np.array(["1"]), id="a string array"),
        pytest.param(np.array([[1, 2]]), id="two rows"),
        pytest.param(np.array(7), id="no row"),
        pytest.param(np.array([1], "m8[s]"), id="durations"),
        pytest.param(np.array([1j]), id="complex numbers"),
        pytest.param(array("d", [1.0]), id="an array of doubles"),
        pytest.param(memoryview(np.array([1.5])), id="a buffer of doubles"),
        pytest.param([1] * 5000 + [1.5], id="a float behind many integers"),
        pytest.param([7] * 5000 + [True], id="a bool behind many integers"),
        pytest.param([True] + [7] * 5000, id="a bool before many integers"),
    ],
)
def test_what_is_no_row_of_integers_is_refused(tokens: object) -> None:
    with pytest.raises(InvalidRequest):
        Prompt.of_tokens(tokens)


@pytest.mark.parametrize("bad", [-1, -(2**31), 2**31, 2**32, 2**32 + 5, 2**63, -(2**63), 2**64, 2**100])
@pytest.mark.parametrize("at", [0, 1, 2000])
def test_a_token_out_of_range_is_refused_wherever_it_stands(bad: int, at: int) -> None:
    tokens = [7] * 2001
    tokens[at] = bad
    with pytest.raises(InvalidRequest):
        Prompt.of_tokens(tokens)


@pytest.mark.parametrize(
    ("dtype", "bad"), [("i1", -1), ("i2", -1), ("<i4", -1), (">i4", -5), ("<u4", 2**31), ("i8", 2**31), ("i8", -1)]
)
def test_an_array_with_a_token_out_of_range_is_refused_and_says_which(dtype: str, bad: int) -> None:
    with pytest.raises(InvalidRequest, match=str(bad)):
        Prompt.of_tokens(np.array([3, bad, 4], dtype))


def test_a_token_that_only_wraps_to_a_small_one_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        Prompt.of_tokens(np.array([2**64 - 1], np.uint64))
    with pytest.raises(InvalidRequest):
        Prompt.of_tokens(np.array([2**40 + 5], np.int64))


@pytest.mark.parametrize("nothing", [[], (), np.array([], np.int32), np.array([], np.int64), array("i"), range(0)])
def test_a_prompt_has_at_least_one_token(nothing: object) -> None:
    with pytest.raises(InvalidRequest, match="at least one"):
        Prompt.of_tokens(nothing)


@pytest.mark.parametrize("container", ["list", "array of int32", "<i4", "u8", "memoryview"])
def test_an_engine_may_reuse_its_buffer_at_once(container: str) -> None:
    buffer = _CONTAINERS[container](_TOKENS)
    prompt = Prompt.of_tokens(buffer)
    before = prompt.block_symbols(_BLOCKS)
    for at in range(len(buffer)):
        buffer[at] = 9
    assert prompt.block_symbols(_BLOCKS) == before == np.array(_TOKENS, "<u4").tobytes()


@pytest.mark.parametrize("as_list", [True, False])
def test_a_million_tokens_keep_every_one(as_list: bool) -> None:
    tokens = np.arange(1_000_000, dtype=np.int32)
    prompt = Prompt.of_tokens(tokens.tolist() if as_list else tokens)
    assert prompt.token_count == 1_000_000
    assert prompt.block_symbols(_BLOCKS) == tokens.tobytes()


@pytest.mark.parametrize("count", [1023, 1024, 1025, 2048, 4097])
def test_a_list_of_any_length_is_packed_whole(count: int) -> None:
    assert Prompt.of_tokens(list(range(count))).block_symbols(_BLOCKS) == np.arange(count, dtype="<u4").tobytes()


@pytest.mark.parametrize("width", [1, 4, 8, 20, 32, 64])
def test_names_of_any_width_are_kept_as_they_are(width: int) -> None:
    names = [bytes([at]) * width for at in range(3)]
    prompt = Prompt.of_names(names, token_count=50)
    assert prompt.token_count == 50
    assert prompt.block_symbols(BlockFormat.of_names(symbol_bytes=width, block_tokens=16)) == b"".join(names)


@pytest.mark.parametrize(("dtype", "width"), [("i4", 4), ("u4", 4), ("i8", 8), ("u8", 8), (">i8", 8)])
def test_integer_names_are_their_little_endian_bytes(dtype: str, width: int) -> None:
    prompt = Prompt.of_names(np.array([1, 258], dtype), token_count=8)
    expected = (1).to_bytes(width, "little") + (258).to_bytes(width, "little")
    assert prompt.block_symbols(BlockFormat.of_names(symbol_bytes=width, block_tokens=4)) == expected


def test_a_name_beyond_the_last_full_block_is_left_out() -> None:
    blocks = BlockFormat.of_names(symbol_bytes=2, block_tokens=4)
    whole = Prompt.of_names([b"aa", b"bb"], token_count=9)
    started = Prompt.of_names([b"aa", b"bb", b"cc"], token_count=9)
    assert whole.block_symbols(blocks) == started.block_symbols(blocks) == b"aabb"


@pytest.mark.parametrize(("count", "token_count"), [(1, 8), (0, 4), (3, 7), (4, 11), (9, 8)])
def test_names_must_reach_as_far_as_the_tokens(count: int, token_count: int) -> None:
    prompt = Prompt.of_names([b"name"] * count, token_count=token_count)
    with pytest.raises(InvalidRequest, match="full blocks"):
        prompt.block_symbols(BlockFormat.of_names(symbol_bytes=4, block_tokens=4))


@pytest.mark.parametrize("width", [3, 5, 8, 32])
def test_names_too_short_or_too_long_for_the_namespace_are_refused(width: int) -> None:
    prompt = Prompt.of_names([b"x" * width], token_count=4)
    with pytest.raises(InvalidRequest, match=f"{width} bytes"):
        prompt.block_symbols(BlockFormat.of_names(symbol_bytes=4, block_tokens=4))


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([b"ab", b"abc"], id="two widths"),
        pytest.param([b"", b""], id="empty names"),
        pytest.param([b"ab", b""], id="one empty name"),
        pytest.param(["ab"], id="strings"),
        pytest.param("ab", id="a string"),
        pytest.param(b"ab", id="bytes"),
        pytest.param([1, 2], id="a list of integers"),
        pytest.param([b"ab", None], id="nothing among names"),
        pytest.param([bytearray(b"ab")], id="a bytearray, which may change"),
        pytest.param(np.array([1.5]), id="floats"),
        pytest.param(np.array([True]), id="bools"),
        pytest.param(np.array([[1], [2]]), id="two rows"),
        pytest.param(np.array([b"ab"]), id="an array of bytes, which loses trailing zeros"),
        pytest.param(np.array([1], object), id="objects"),
        pytest.param(None, id="nothing"),
        pytest.param(5, id="a number"),
        pytest.param({b"ab", b"cd"}, id="a set, which has no order"),
    ],
)
def test_what_are_no_names_is_refused(names: object) -> None:
    with pytest.raises(InvalidRequest):
        Prompt.of_names(names, token_count=8)


@pytest.mark.parametrize("token_count", [0, -1, 1.5, 4.0, None, "4"])
def test_a_prompt_of_names_has_a_whole_number_of_tokens(token_count: object) -> None:
    with pytest.raises(InvalidRequest):
        Prompt.of_names([b"ab"], token_count=token_count)


def test_a_prompt_fits_namespaces_of_its_kind_only() -> None:
    tokens, names = Prompt.of_tokens([1, 2, 3, 4]), Prompt.of_names([b"abcd"], token_count=4)
    with pytest.raises(InvalidRequest, match="tokens cannot be matched in a namespace of names"):
        tokens.block_symbols(BlockFormat.of_names(symbol_bytes=4, block_tokens=4))
    with pytest.raises(InvalidRequest, match="names cannot be matched in a namespace of tokens"):
        names.block_symbols(_BLOCKS)


def test_a_prompt_says_how_long_it_is_and_nothing_of_what_it_says() -> None:
    assert repr(Prompt.of_tokens([77, 78])) == "Prompt(2 tokens as tokens)"
    assert repr(Prompt.of_names([b"secret"], token_count=16)) == "Prompt(16 tokens as names)"


def _symbols(tokens: list[int], *spans: tuple[int, int, bytes], block_tokens: int = 4) -> list[bytes]:
    media = [MediaSpan(start=start, token_count=count, digest=digest) for start, count, digest in spans]
    symbols = Prompt.of_tokens(tokens, media=media).block_symbols(BlockFormat.of_tokens(block_tokens))
    width = 4 * block_tokens
    return [symbols[at : at + width] for at in range(0, len(symbols), width)]


def test_media_replaces_the_full_blocks_that_it_touches_and_no_other() -> None:
    tokens = list(range(18))
    plain, media = _symbols(tokens), _symbols(tokens, (6, 3, _DIGEST))
    assert [left == right for left, right in zip(plain, media, strict=True)] == [True, False, False, True, True]


def test_text_cannot_spell_media() -> None:
    for symbol in _symbols(list(range(8)), (0, 8, _DIGEST)):
        assert (np.frombuffer(symbol, "<u4") >= 2**31).all()


def test_media_in_a_started_block_waits_until_it_is_full() -> None:
    tokens = list(range(10))
    assert _symbols(tokens, (8, 2, _DIGEST)) == _symbols(tokens)


def test_whatever_of_media_differs_makes_another_block() -> None:
    other = _DIGEST[:-1] + b"\xff"
    variants = [
        _symbols([7] * 4),
        _symbols([7] * 4, (0, 1, _DIGEST)),
        _symbols([7] * 4, (0, 2, _DIGEST)),
        _symbols([7] * 4, (1, 1, _DIGEST)),
        _symbols([7] * 4, (0, 1, other)),
        _symbols([7] * 4, (0, 1, _DIGEST[:16])),
        _symbols([7] * 4, (0, 1, _DIGEST), (1, 1, other)),
        _symbols([7] * 4, (0, 1, other), (1, 1, _DIGEST)),
        _symbols([7, 7, 7, 8], (0, 1, _DIGEST)),
    ]
    assert len({variant[0] for variant in variants}) == len(variants)
    assert _symbols([7] * 4, (0, 1, _DIGEST)) == variants[1]


def test_each_block_of_a_long_image_is_another_one() -> None:
    symbols = _symbols([7] * 16, (0, 16, _DIGEST))
    assert len(set(symbols)) == 4


@pytest.mark.parametrize(
    "spans",
    [
        pytest.param([(0, 9)], id="longer than the prompt"),
        pytest.param([(8, 1)], id="behind the prompt"),
        pytest.param([(4, 2), (0, 2)], id="out of order"),
        pytest.param([(0, 3), (2, 2)], id="overlapping"),
    ],
)
def test_media_spans_lie_inside_in_order_and_apart(spans: list[tuple[int, int]]) -> None:
    media = [MediaSpan(start=start, token_count=count, digest=_DIGEST) for start, count in spans]
    with pytest.raises(InvalidRequest, match="media spans"):
        Prompt.of_tokens(range(8), media=media)


@pytest.mark.parametrize(
    ("start", "token_count", "digest"),
    [
        (-1, 1, _DIGEST),
        (0, 0, _DIGEST),
        (0, -1, _DIGEST),
        (0, 1, b"short"),
        (0, 1, b"x" * 15),
        (0, 1, b"x" * 65),
        (0, 1, "x" * 32),
        (0, 1, bytearray(32)),
        (0, 1, None),
        (0.0, 1, _DIGEST),
        (0, 1.5, _DIGEST),
        ("0", 1, _DIGEST),
        (None, 1, _DIGEST),
    ],
)
def test_a_media_span_that_is_none_is_refused(start: object, token_count: object, digest: object) -> None:
    with pytest.raises(InvalidRequest):
        MediaSpan(start=start, token_count=token_count, digest=digest)


@pytest.mark.parametrize("block_tokens", [1, 2, 3])
def test_blocks_too_short_for_a_digest_refuse_media(block_tokens: int) -> None:
    with pytest.raises(InvalidRequest, match="4 tokens or more"):
        _symbols([7] * 8, (0, 4, _DIGEST), block_tokens=block_tokens)
