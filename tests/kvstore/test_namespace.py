"""Whose KV is it? No two boundaries may spell the same bytes, and no secret may show."""

from __future__ import annotations

import dataclasses
import hashlib
from itertools import combinations

import pytest

from kvstore import BlockFormat, ConfigError, Namespace, SymbolKind

_FORMAT = BlockFormat.of_tokens(16)


def _namespace(**fields: object) -> Namespace:
    return Namespace(**({"model": "m", "format": _FORMAT} | fields))


def test_no_two_of_these_are_equal() -> None:
    spaces = [
        _namespace(),
        _namespace(model="m2"),
        _namespace(format=BlockFormat.of_tokens(32)),
        _namespace(format=BlockFormat.of_names(symbol_bytes=64, block_tokens=16)),
        _namespace(format=BlockFormat.of_names(symbol_bytes=32, block_tokens=16)),
        *(_namespace(**{name: "X"}) for name in ("revision", "layout", "adapter", "adapter_revision", "salt")),
        *(_namespace(**{name: ""}) for name in ("revision", "layout", "adapter", "adapter_revision")),
        _namespace(adapter="ab", adapter_revision="c"),
        _namespace(adapter="a", adapter_revision="bc"),
        *(_namespace(extras={"X": value}) for value in ("X", b"X", "", b"", None)),
        _namespace(extras={"": "X"}),
        _namespace(extras={"salt": "X"}),
        _namespace(extras={"a": "b", "c": "d"}),
        _namespace(extras={"a": "bc", "d": ""}),
        _namespace(salt=b"\0"),
        _namespace(salt="sX"),
    ]
    for left, right in combinations(spaces, 2):
        assert left.digest != right.digest, (left, right)
        assert left != right
        assert left.differing_fields(right)


def test_equal_fields_make_an_equal_namespace_however_they_are_given() -> None:
    first = _namespace(salt="secret", extras={"a": "1", "b": None})
    second = _namespace(salt=b"secret", extras={"b": None, "a": "1"})
    assert first == second
    assert first.digest == second.digest
    assert hash(first) == hash(second)
    assert first.differing_fields(second) == ()


@pytest.mark.parametrize("nothing", ["", b"", None])
def test_an_empty_salt_is_none(nothing: str | bytes | None) -> None:
    assert _namespace(salt=nothing) == _namespace()


def test_the_digest_is_sha256_over_tagged_length_prefixed_fields() -> None:
    space = _namespace(revision="r", salt=b"\1", extras={"k": "v", "n": None, "b": b"v"})
    parts = [b"format", b"tokens/64/16", b"model", b"sm", b"revision", b"sr", b"layout", b"\0", b"adapter", b"\0"]
    parts += [b"adapter_revision", b"\0", b"salt", b"b\1"]
    parts += [b"extra", b"b", b"bv", b"extra", b"k", b"sv", b"extra", b"n", b"\0"]
    spelled = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    assert space.digest == hashlib.sha256(b"kvstore-namespace-v1" + spelled).digest()


def test_a_changed_copy_has_its_own_digest() -> None:
    space = _namespace(salt="a")
    assert dataclasses.replace(space, salt="b").digest == _namespace(salt="b").digest != space.digest


def test_nobody_can_hand_in_a_digest() -> None:
    with pytest.raises(TypeError):
        Namespace(model="m", format=_FORMAT, digest=b"forged")


def test_a_namespace_does_not_change() -> None:
    extras = {"a": "1"}
    space = _namespace(extras=extras)
    extras["a"] = "2"
    assert space == _namespace(extras={"a": "1"})
    with pytest.raises(TypeError):
        space.extras["a"] = "3"
    with pytest.raises(dataclasses.FrozenInstanceError):
        space.model = "other"


def test_a_salt_shows_nowhere() -> None:
    space = _namespace(salt="a very secret salt")
    assert "secret" not in repr(space)
    assert space.digest.hex() not in repr(space), "who knows the digest can test guesses of the salt"
    assert "secret" not in str(space.differing_fields(_namespace()))


def test_the_fields_that_differ_are_named_without_their_values() -> None:
    left = _namespace(revision="1", salt="s", extras={"rope": "a", "same": "x"})
    right = _namespace(model="n", salt="t", extras={"same": "x", "kind": None})
    assert left.differing_fields(right) == ("model", "revision", "salt", "extras[kind]", "extras[rope]")


@pytest.mark.parametrize(
    "fields",
    [
        {"model": ""},
        {"model": None},
        {"model": b"m"},
        {"model": 5},
        {"format": 16},
        {"format": None},
        {"revision": 3},
        {"layout": b"x"},
        {"adapter": 1.5},
        {"adapter_revision": ["x"]},
        {"salt": 5},
        {"salt": bytearray(b"x")},
        {"extras": ["a"]},
        {"extras": {1: "a"}},
        {"extras": {"a": 1}},
        {"extras": {"a": ["b"]}},
        {"extras": {"a": True}},
        {"model": "\ud800"},
        {"salt": "\ud800"},
        {"extras": {"\ud800": "a"}},
        {"extras": {"a": "\ud800"}},
    ],
)
def test_a_field_of_a_wrong_type_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        _namespace(**fields)


@pytest.mark.parametrize("block_tokens", [1, 3, 16, 64, 1 << 16])
def test_a_block_of_tokens_is_its_tokens(block_tokens: int) -> None:
    blocks = BlockFormat.of_tokens(block_tokens)
    assert blocks.kind is SymbolKind.TOKENS
    assert blocks.symbol_bytes == 4 * block_tokens


@pytest.mark.parametrize("symbol_bytes", [1, 4, 8, 32, 64])
def test_a_name_has_a_fixed_width(symbol_bytes: int) -> None:
    blocks = BlockFormat.of_names(symbol_bytes=symbol_bytes, block_tokens=3)
    assert (blocks.kind, blocks.symbol_bytes) == (SymbolKind.NAMES, symbol_bytes)


@pytest.mark.parametrize("block_tokens", [0, -1, (1 << 16) + 1])
def test_a_block_has_a_sensible_number_of_tokens(block_tokens: int) -> None:
    with pytest.raises(ConfigError):
        BlockFormat.of_tokens(block_tokens)
    with pytest.raises(ConfigError):
        BlockFormat.of_names(symbol_bytes=8, block_tokens=block_tokens)


@pytest.mark.parametrize("number", [16.0, True, "16", None, 16.5])
def test_sizes_are_whole_numbers(number: object) -> None:
    with pytest.raises(ConfigError, match="whole number"):
        BlockFormat.of_tokens(number)
    with pytest.raises(ConfigError, match="whole number"):
        BlockFormat.of_names(symbol_bytes=number, block_tokens=16)
    with pytest.raises(ConfigError, match="whole number"):
        BlockFormat.of_names(symbol_bytes=16, block_tokens=number)


def test_a_kind_is_one_of_the_two() -> None:
    with pytest.raises(ConfigError, match="kind"):
        BlockFormat(kind="tokens", symbol_bytes=64, block_tokens=16)


@pytest.mark.parametrize("symbol_bytes", [0, -8, 65])
def test_a_name_has_a_sensible_width(symbol_bytes: int) -> None:
    with pytest.raises(ConfigError):
        BlockFormat.of_names(symbol_bytes=symbol_bytes, block_tokens=16)


def test_a_format_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ConfigError):
        BlockFormat(kind=SymbolKind.TOKENS, symbol_bytes=8, block_tokens=16)
