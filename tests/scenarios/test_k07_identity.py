"""K07: the identity of a block misses something."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pytest

import kvstore.residency
from kvstore import BlockFormat, InvalidRequest, KVStore, MediaSpan, Namespace, Prompt
from tests.support.engine import Engine
from transfer import ElementType, Layout, VirtualPagePool

A = list(range(1, 9))
FORMAT = BlockFormat.of_tokens(4)
LAYOUT = Layout(layers=2, kv_heads=1, head_dim=2, block_tokens=4)
IMAGE = hashlib.sha256(b"an image").digest()


def _space(**fields: str | bytes | Mapping[str, str | bytes | None] | None) -> Namespace:
    return Namespace(**{"model": "m", "format": FORMAT, **fields})


def _names(tokens: Iterable[int], *, media: Iterable[MediaSpan] = (), block_tokens: int = 4) -> list[bytes]:
    store = KVStore(VirtualPagePool(page_count=1, block_tokens=block_tokens))
    return store.block_names(Prompt.of_tokens(list(tokens), media=media))


class _ConstantHash:
    """In the place of xxhash: every run has the same ghost id."""

    asked = 0

    @staticmethod
    def xxh3_64_intdigest(data: memoryview, seed: int) -> int:
        _ConstantHash.asked += 1
        return 1

    @staticmethod
    def xxh3_64(data: memoryview, seed: int) -> _ConstantHash:
        return _ConstantHash()

    def update(self, data: bytes) -> None:
        pass

    def intdigest(self) -> int:
        _ConstantHash.asked += 1
        return 1


def test_b053_a_hash_that_collides_causes_no_false_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    """B053: the only weak hash here names runs to policies and the log; with it constant, tokens still decide."""
    monkeypatch.setattr(kvstore.residency, "xxhash", _ConstantHash)
    engine = Engine(page_count=512)
    prompts = [[*A[: at % 7], 50 + at, *range(100, 108), at] for at in range(100)]
    for prompt in prompts:
        engine.serve(prompt)
    for at, prompt in enumerate(prompts):
        assert engine.cached(prompt) == len(prompt) // 4 * 4
        assert engine.cached([*prompt[:-1], 10_000 + at]) == (len(prompt) - 1) // 4 * 4
    engine.evict(50)
    for prompt in prompts:
        engine.serve(prompt)  # checks the stamps of what it finds
    assert _ConstantHash.asked > 100
    engine.check_quiet()


@pytest.mark.parametrize("block_tokens", [1, 2, 4])
def test_b054_neighbouring_token_lists_are_different_blocks(block_tokens: int) -> None:
    """B054: deltas that cancel in a polynomial, swapped tokens, permuted pages, the same page at another depth."""
    base = [1000 + 100 * at for at in range(8)]
    variants = [base]
    for at in range(7):
        for delta in (31, 33, 257, 65_599):
            changed = list(base)
            changed[at] += delta
            changed[at + 1] -= 1
            variants.append(changed)
        swapped = list(base)
        swapped[at], swapped[at + 1] = swapped[at + 1], swapped[at]
        variants.append(swapped)
    variants += [base[4:] + base[:4], base[:4] * 2, base[4:] * 2, [0, *base[:7]], [0] * 8, [0] * 7 + [1]]
    variants = list(map(list, dict.fromkeys(map(tuple, variants))))
    assert len({_names(variant, block_tokens=block_tokens)[-1] for variant in variants}) == len(variants)
    engine = Engine(page_count=512, block_tokens=block_tokens)
    for variant in variants:
        engine.serve(variant)  # checks the stamps of what it finds
    for variant in variants:
        assert engine.cached(variant) == 8
    assert engine.cached(base[4:]) == (4 if base[4:] * 2 in variants else 0)
    assert engine.cached(base[2:6]) == 0
    assert engine.cached([99, *base]) == 0
    engine.check_quiet()


def test_b054_a_token_is_a_number_whatever_holds_it() -> None:
    """B054: ``np.int32(5)``, ``np.int64(5)``, ``np.uint32(5)`` and ``5`` are one token, in lists and in arrays."""
    tokens = [5, 0, (1 << 31) - 1, 7]
    kinds: list[list[int]] = [list(map(kind, tokens)) for kind in (int, np.int32, np.int64, np.uint32, np.uint64)]
    arrays = [np.array(tokens, kind) for kind in ("<i4", ">i4", "<i8", "<u4", "<u8")]
    strided = np.repeat(np.array(tokens, np.int32), 2)[::2]
    assert {tuple(_names(each)) for each in [*kinds, tuple(tokens), *arrays, strided]} == {tuple(_names(tokens))}


@pytest.mark.parametrize(
    "tokens",
    [
        [-1, 2, 3, 4],
        [1, 2, 3, 1 << 31],
        [1, 2, 3, 1 << 32],
        [1, 2, 3, 1 << 40],
        [1, True, 3, 4],
        [False, 2, 3, 4],
        [1.0, 2, 3, 4],
        [1, 2, 3, np.float32(4)],
        [1, np.True_, 3, 4],
        ["1", 2, 3, 4],
        [None, 2, 3, 4],
        np.array([1.0, 2.0]),
        np.array([True, False]),
        np.array([1, -2]),
        np.array([1, 1 << 31], np.int64),
        np.array([1, 1 << 31], np.uint32),
        np.array([[1, 2], [3, 4]], np.int32),
        b"1234",
        "1234",
        {3, 1, 2},
        {3: 1, 1: 2},
        [],
    ],
)
def test_b054_what_is_no_token_is_refused(tokens: list[int]) -> None:
    """B054: bools, floats, negative and too large numbers: refused at the door, never wrapped into another token."""
    with pytest.raises(InvalidRequest):
        Prompt.of_tokens(tokens)
    engine = Engine(page_count=4)
    with engine.begin(A) as request:
        if len(tokens):
            with pytest.raises(InvalidRequest):
                request.sequence.append(tokens)
        assert request.sequence.token_count == 8
        engine.check()


def test_b055_media_ids_are_whole_and_placed() -> None:
    """B055: many media ids; ids that share a long head or all but the end; the same id at another offset."""
    text = [7] * 8
    ids = [number.to_bytes(32, "big") for number in range(5_000)]
    ids += [number.to_bytes(32, "little") for number in range(1, 256)]
    ids += [bytes(16), bytes(17), bytes(64)]
    names = {_names(text, media=[MediaSpan(start=1, token_count=6, digest=each)])[-1] for each in ids}
    assert len(names) == len(ids)
    places = [(start, count) for start in range(8) for count in range(1, 9 - start)]
    names = {_names(text, media=[MediaSpan(start=at, token_count=size, digest=IMAGE)])[-1] for at, size in places}
    assert len(names) == len(places)
    other = hashlib.sha256(b"another image").digest()
    pairs = [
        [MediaSpan(start=0, token_count=2, digest=first), MediaSpan(start=at, token_count=2, digest=second)]
        for first, second in itertools.product([IMAGE, other], repeat=2)
        for at in (2, 3)
    ]
    assert len({_names(text, media=spans)[-1] for spans in pairs}) == len(pairs)


def test_b055_text_never_spells_an_image() -> None:
    """B055: equal text with another image, without one, and with the image one token further on: no hit."""
    engine = Engine(page_count=32)
    other = hashlib.sha256(b"another image").digest()
    prompt = [1, 2, 3, 4, 7, 7, 7, 7, 5]
    spans = [
        [],
        [MediaSpan(start=5, token_count=2, digest=IMAGE)],
        [MediaSpan(start=5, token_count=2, digest=other)],
        [MediaSpan(start=6, token_count=2, digest=IMAGE)],
        [MediaSpan(start=5, token_count=3, digest=IMAGE)],
        [MediaSpan(start=4, token_count=2, digest=IMAGE)],
    ]
    for media in spans:
        assert engine.serve(prompt, media=media) == (4 if media else 0)
    for media in spans:
        assert engine.serve(prompt, media=media) == 8
    engine.check_quiet()


@pytest.mark.parametrize("park", [False, True])
def test_b055_an_image_in_the_prompts_last_block_counts_when_the_answer_fills_it(park: bool) -> None:
    """B055: the block with the image becomes full while decoding, before or after a preemption; never as plain text."""
    engine = Engine(page_count=32)
    media = [MediaSpan(start=4, token_count=2, digest=IMAGE)]
    tokens = [1, 2, 3, 4, 7, 7, 8, 9, 10]
    engine.serve(tokens)
    with engine.begin(tokens[:6], media=media) as request:
        request.decode(tokens[6:8])
        if park:
            request.park()
            assert request.resume() == 4
        request.decode(tokens[8:])
        request.prefill()
        engine.check()
    with engine.begin([*tokens, 11], media=media) as again:
        assert again.sequence.cached_tokens == 8
    other = [MediaSpan(start=4, token_count=2, digest=hashlib.sha256(b"another image").digest())]
    assert engine.cached(tokens, media=other) == 4
    engine.check_quiet()


_BOUNDARIES: list[dict[str, str | bytes | Mapping[str, str | bytes | None]]] = [
    {},
    {"model": "X"},
    {"revision": "X"},
    {"layout": "X"},
    {"adapter": "X"},
    {"adapter_revision": "X"},
    {"salt": "X"},
    {"extras": {"X": "X"}},
    {"extras": {"X": b"X"}},
    {"extras": {"X": None}},
    {"extras": {"X": ""}},
    {"extras": {"": "X"}},
    {"extras": {"tenant": "X"}},
    {"extras": {"media": "X"}},
    {"extras": {"adapter": "X"}},
    {"extras": {"salt": "X"}},
    {"extras": {"ab": "c"}},
    {"extras": {"a": "bc"}},
    {"extras": {"a": "b", "c": ""}},
    # Pairs whose bytes would be equal if lengths did not stand before them.
    {"extras": {"a": "sb"}},
    {"extras": {"as": "b"}},
    {"extras": {"a": "x", "b": "y"}},
    {"extras": {"a": "xextrabsy"}},
    {"adapter": "Xadapter_revisionsY"},
    {"adapter": "X", "adapter_revision": "Y"},
    {"extras": {"a": "b", "c": "d"}},
    {"adapter": "ab", "adapter_revision": "c"},
    {"adapter": "a", "adapter_revision": "bc"},
    {"adapter": "abc"},
    {"adapter": "X", "salt": "X"},
    {"adapter": ""},
    {"model": "mX"},
    {"model": "m", "revision": "", "layout": ""},
]


def test_b056_no_field_spells_another() -> None:
    """B056: all pairs from adapter="X", salt="X", media="X", tenant="X", none ..., and "ab","c" against "a","bc"."""
    engine = Engine(page_count=128)
    spaces = [_space(**fields) for fields in _BOUNDARIES]
    assert len({space.digest for space in spaces}) == len(set(spaces)) == len(spaces)
    for space in spaces:
        assert engine.serve(A, namespace=space) == 0
    assert engine.store.stats().cached_pages == 2 * len(spaces)
    for space in spaces:
        assert engine.serve([*A, 9], namespace=space) == 8
    for ours, theirs in itertools.permutations(spaces, 2):
        assert ours.differing_fields(theirs)
    engine.check_quiet()


def test_b056_a_changed_copy_of_a_namespace_is_another_one() -> None:
    """B056: a namespace is a frozen dataclass, so people copy it with a change; the copy must not keep the identity."""
    engine = Engine(page_count=16)
    first = _space(revision="1")
    second = dataclasses.replace(first, revision="2")
    assert second == _space(revision="2")
    assert second.digest == _space(revision="2").digest
    engine.serve(A, namespace=first)
    assert engine.cached(A, namespace=second) == 0
    assert dataclasses.replace(second, revision="1").digest == first.digest
    engine.check_quiet()


def test_b057_every_question_uses_the_same_identity() -> None:
    """B057: one tier: tenant b with tenant a's tokens: begin, peek, explain and names all answer for b alone."""
    engine = Engine(page_count=16)
    a, b = _space(salt="a"), _space(salt="b")
    engine.serve(A, namespace=a)
    prompt = Prompt.of_tokens(A)
    assert engine.cached(A, namespace=b) == 0
    assert "hit" not in {span.fate.value for span in engine.store.explain(prompt, namespace=b).spans}
    assert set(engine.store.block_names(prompt, namespace=a)).isdisjoint(engine.store.block_names(prompt, namespace=b))
    with engine.begin(A, namespace=b) as request:
        assert (request.sequence.cached_tokens, request.sequence.matched_tokens) == (0, 0)
        request.prefill()
        assert request.commit().remapped == range(0)
    assert engine.store.stats().cached_pages == 4
    engine.check_quiet()


_LAYOUTS = [
    LAYOUT,
    dataclasses.replace(LAYOUT, layers=1, kv_heads=2),
    dataclasses.replace(LAYOUT, layers=1, head_dim=4),
    dataclasses.replace(LAYOUT, kv_heads=2, head_dim=1),
    dataclasses.replace(LAYOUT, layers=4),
    dataclasses.replace(LAYOUT, element=ElementType.FLOAT16),
    dataclasses.replace(LAYOUT, element=ElementType.FLOAT8_E4M3),
    dataclasses.replace(LAYOUT, element=ElementType.FLOAT8_E5M2),
    dataclasses.replace(LAYOUT, group=1),
    dataclasses.replace(LAYOUT, block_tokens=8),
]


def test_b058_what_changes_the_bytes_changes_the_identity() -> None:
    """B058: write under one identity, read back with one field changed at a time: weights, shape, dtype, rank ..."""
    engine = Engine(page_count=64)
    identity: dict[str, str | bytes | Mapping[str, str | bytes | None] | None] = {
        "revision": "weights-1",
        "layout": LAYOUT.fingerprint,
        "adapter": "lora",
        "adapter_revision": "1",
        "extras": {"rope": "1.0", "tensor_parallel": "0/2"},
    }
    engine.serve(A, namespace=_space(**identity))
    changes: list[dict[str, str | bytes | Mapping[str, str | bytes | None] | None]] = [
        {"model": "m2"},
        {"revision": "weights-2"},
        {"revision": None},
        {"adapter": "lora2"},
        {"adapter": None},
        {"adapter_revision": "2"},
        {"extras": {"rope": "2.0", "tensor_parallel": "0/2"}},
        {"extras": {"rope": "1.0", "tensor_parallel": "1/2"}},
        {"extras": {"rope": "1.0"}},
        *({"layout": layout.fingerprint} for layout in _LAYOUTS[1:]),
    ]
    for change in changes:
        assert engine.cached(A, namespace=_space(**{**identity, **change})) == 0
    assert len({layout.fingerprint for layout in _LAYOUTS}) == len(_LAYOUTS)
    assert engine.cached(A, namespace=_space(**identity)) == 8
    assert engine.cached(A, namespace=_space(**{**identity, "extras": {"tensor_parallel": "0/2", "rope": "1.0"}})) == 8


_PROGRAM = """
import hashlib, random
from kvstore import BlockFormat, KVStore, MediaSpan, Namespace, Prompt
from transfer import VirtualPagePool
space = Namespace(
    model="m", format=BlockFormat.of_tokens(4), revision="1", adapter="a", salt="s", extras={"b": None, "a": "x"}
)
store = KVStore(VirtualPagePool(page_count=1, block_tokens=4), namespace=space)
choose, names = random.Random(60), hashlib.sha256()
for _ in range(1000):
    tokens = [choose.randrange(1 << 31) for _ in range(choose.randint(4, 24))]
    media = [MediaSpan(start=1, token_count=2, digest=b"0123456789abcdef")] if choose.random() < 0.2 else []
    names.update(b"".join(store.block_names(Prompt.of_tokens(tokens, media=media))))
print(names.hexdigest())
"""
_GOLDEN = "e73ea3b119400a740862c42448d6b9b16454e65a352f4dda8409c6f9e016d9a4"


def test_b060_a_name_is_a_plain_hash_chain_over_the_namespace() -> None:
    """B060: anybody can compute a name with hashlib: the digest, then each block's packed tokens."""
    store = KVStore(VirtualPagePool(page_count=1, block_tokens=4), namespace=_space(salt="s"))
    first = hashlib.sha256(store.namespace.digest + np.arange(4, dtype="<u4").tobytes()).digest()
    second = hashlib.sha256(first + np.arange(4, 8, dtype="<u4").tobytes()).digest()
    assert store.block_names(Prompt.of_tokens(range(11))) == [first, second]


def test_b060_names_are_the_same_in_every_process() -> None:
    """B060: 1 000 prompts in 3 fresh processes with different PYTHONHASHSEED: byte-equal, also to a golden value."""
    running = []
    for seed in ("0", "1", "random"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])}
        running.append(
            subprocess.Popen([sys.executable, "-c", _PROGRAM], env=environment, stdout=subprocess.PIPE, text=True)
        )
    found = [process.communicate(timeout=60)[0].strip() for process in running]
    assert found == [_GOLDEN] * 3
