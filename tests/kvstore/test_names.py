"""A block's name outside the process: a plain hash chain, whatever the tree has been through."""

from __future__ import annotations

import hashlib
import struct

import numpy as np
import pytest

from kvstore import BlockFormat, ConfigError, InvalidRequest, KVStore, Namespace, Prompt
from kvstore.names import chain_names, split_names
from transfer import VirtualPagePool

_BLOCK_TOKENS = 4
_SPACE = Namespace(model="m", format=BlockFormat.of_tokens(_BLOCK_TOKENS))


def _store(page_count: int = 64) -> KVStore:
    return KVStore(VirtualPagePool(page_count=page_count, block_tokens=_BLOCK_TOKENS), namespace=_SPACE)


def _plain_chain(tokens: list[int], seed: bytes = _SPACE.digest) -> list[bytes]:
    names = []
    for start in range(0, len(tokens) - _BLOCK_TOKENS + 1, _BLOCK_TOKENS):
        seed = hashlib.sha256(seed + struct.pack("<4I", *tokens[start : start + _BLOCK_TOKENS])).digest()
        names.append(seed)
    return names


def _serve(store: KVStore, tokens: list[int]) -> None:
    with store.begin(Prompt.of_tokens(tokens)) as sequence:
        sequence.reserve(through=len(tokens))
        sequence.commit(through=len(tokens))


def test_without_a_seed_the_chain_is_sglangs_page_hash() -> None:
    """Vectors that SGLang 0.5.23's own code gave for pages of 4 tokens without a namespace."""
    names = split_names(chain_names(b"", struct.pack("<8I", *range(1, 9)), 16))
    assert [name.hex() for name in names] == [
        "cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72",
        "4ebfa8a1f3c341517621838c6e1b9aa350307e3f00b3cbd1a07ef740f54396d6",
    ]
    assert int.from_bytes(names[0][:8], "big", signed=True) == -3488128144981237669  # as SGLang's events write it


@pytest.mark.parametrize("token_count", [1, 3, 4, 5, 7, 8, 9, 63])
def test_names_are_a_plain_chain_over_full_blocks(token_count: int) -> None:
    tokens = list(range(100, 100 + token_count))
    assert _store().block_names(Prompt.of_tokens(tokens)) == _plain_chain(tokens)


def test_a_chain_continues_where_it_was_left() -> None:
    symbols = np.arange(40, dtype="<u4").tobytes()
    whole = chain_names(b"seed", symbols, 16)
    head = chain_names(b"seed", symbols[:64], 16)
    assert head + chain_names(head[-32:], memoryview(symbols)[64:], 16) == whole
    assert chain_names(b"seed", b"", 16) == b""


def test_names_stay_the_same_while_runs_split_grow_merge_and_go() -> None:
    store = _store(page_count=24)
    tokens = list(range(48))
    others = [tokens[:8] + [900] * 12, tokens[:20] + [901] * 8, tokens[:36], tokens]
    for _ in range(3):
        for other in others:
            assert store.block_names(Prompt.of_tokens(other)) == _plain_chain(other)
            _serve(store, other)
            assert store.block_names(Prompt.of_tokens(tokens)) == _plain_chain(tokens)
        with store.begin(Prompt.of_tokens([7])) as hog:
            hog.reserve(through=4 * 13)
        for other in others:
            assert store.block_names(Prompt.of_tokens(other)) == _plain_chain(other)
    store.audit()


def test_names_of_what_a_sequence_appends_continue_the_prompts() -> None:
    store = _store()
    tokens = list(range(10))
    with store.begin(Prompt.of_tokens(tokens)) as sequence:
        for step in range(20):
            sequence.reserve(through=len(tokens))
            sequence.commit(through=len(tokens))
            assert store.block_names(Prompt.of_tokens(tokens)) == _plain_chain(tokens)
            tokens = [*tokens, step]
            sequence.append([step])


def test_asking_for_names_neither_pins_nor_touches_nor_counts() -> None:
    store = _store()
    _serve(store, list(range(16)))
    before = store.stats()
    store.block_names(Prompt.of_tokens(range(16)))
    store.block_names(Prompt.of_tokens([5, 6, 7, 8]), namespace=Namespace(model="n", format=_SPACE.format))
    assert store.stats() == before


def test_another_namespace_has_other_names() -> None:
    store, prompt = _store(), Prompt.of_tokens(range(8))
    other = Namespace(model="m", format=_SPACE.format, salt="s")
    assert not set(store.block_names(prompt)) & set(store.block_names(prompt, namespace=other))


def test_a_name_stands_for_its_whole_prefix() -> None:
    store = _store()
    first, second = (store.block_names(Prompt.of_tokens([head, *range(11)])) for head in (0, 1))
    assert not set(first) & set(second)
    assert store.block_names(Prompt.of_tokens([7] * 8))[0] != store.block_names(Prompt.of_tokens([7] * 8))[1]


def test_foreign_names_are_chained_like_tokens() -> None:
    space = Namespace(model="m", format=BlockFormat.of_names(symbol_bytes=8, block_tokens=_BLOCK_TOKENS))
    names = _store().block_names(Prompt.of_names([b"first---", b"second--"], token_count=9), namespace=space)
    first = hashlib.sha256(space.digest + b"first---").digest()
    assert names == [first, hashlib.sha256(first + b"second--").digest()]


def test_names_are_refused_where_a_request_would_be() -> None:
    with pytest.raises(InvalidRequest):
        _store().block_names(Prompt.of_names([b"x"], token_count=4))
    with pytest.raises(ConfigError, match="8 tokens"):
        _store().block_names(Prompt.of_tokens([1]), namespace=Namespace(model="m", format=BlockFormat.of_tokens(8)))
