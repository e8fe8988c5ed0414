"""Behaviours that engines' own tests fix, A: matching and identity (1 to 17). README.md says where ours differ."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kvstore import BlockFormat, KVStore, MediaSpan, Namespace, Prompt
from kvstore.names import chain_names
from tests.support.engine import Engine
from transfer import VirtualPagePool

P = 4
FORMAT = BlockFormat.of_tokens(P)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _names(tokens: list[int], *, namespace: Namespace | None = None) -> list[bytes]:
    store = KVStore(VirtualPagePool(page_count=1, block_tokens=P))
    return store.block_names(Prompt.of_tokens(tokens), namespace=namespace)


def test_a01_full_pages_hit_and_the_part_page_is_recomputed() -> None:
    """A cached prompt of 3 full pages and a part page comes again: 3 pages hit."""
    engine = Engine(page_count=8)
    prompt = list(range(3 * P + 2))
    engine.serve(prompt)
    with engine.begin(prompt) as request:
        assert request.sequence.cached_tokens == 3 * P
        request.prefill()
        assert len(request.pages) == 4
        assert engine.store.stats().reserved_pages == 1
    engine.check_quiet()


def test_a02_the_last_page_of_an_exact_multiple_is_no_hit() -> None:
    """A fully cached prompt of whole pages: at least one token is computed, and its page is folded back."""
    engine = Engine(page_count=8)
    prompt = list(range(3 * P))
    engine.serve(prompt)
    with engine.begin(prompt) as request:
        assert request.sequence.cached_tokens == 2 * P
        assert request.sequence.matched_tokens == 3 * P
        request.reserve()
        request.write()
        assert request.commit().remapped == range(2, 3)
        engine.check()
    assert engine.store.stats().cached_pages == 3
    engine.check_quiet()


def test_a03_a_hit_ends_at_the_last_page_boundary_before_the_difference() -> None:
    """Prompts that differ in token k share the whole pages before it, for every k."""
    engine = Engine(page_count=128)
    prompt = list(range(4 * P))
    engine.serve(prompt)
    for k in range(4 * P):
        changed = [*prompt[:k], 1000 + k, *prompt[k + 1 :]]
        with engine.begin(changed) as request:
            assert request.sequence.cached_tokens == k // P * P
            request.prefill()
            engine.check()
    engine.check_quiet()


def test_a04_equal_tokens_behind_another_prefix_are_another_block() -> None:
    """Names and matches depend on everything before."""
    first, second = _names([1, 2, 3, 4, 5, 6, 7, 8]), _names([9, 2, 3, 4, 5, 6, 7, 8])
    assert set(first).isdisjoint(second)
    assert _names([5, 6, 7, 8])[0] not in first
    engine = Engine(page_count=16)
    engine.serve([1, 2, 3, 4, 5, 6, 7, 8])
    assert engine.serve([9, 2, 3, 4, 5, 6, 7, 8, 0]) == 0
    assert engine.serve([5, 6, 7, 8, 0]) == 0
    engine.check_quiet()


def test_a05_a_page_that_decoding_completed_hits_in_the_next_turn() -> None:
    """The output is part of the next prompt."""
    engine = Engine(page_count=8)
    engine.serve([1, 2, 3], sampled=[4, 5, 6, 7, 8, 9])
    assert engine.serve([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]) == 2 * P
    engine.check_quiet()


def test_a06_salts_separate_and_equal_salts_share() -> None:
    """Salts "a" and "b" never meet; the same salt hits; none is not any."""
    engine = Engine(page_count=32)
    spaces = {salt: Namespace(model="m", format=FORMAT, salt=salt) for salt in ("a", "b", None)}
    prompt = list(range(9))
    for space in spaces.values():
        assert engine.serve(prompt, namespace=space) == 0
    for salt in spaces:
        assert engine.serve(prompt, namespace=Namespace(model="m", format=FORMAT, salt=salt)) == 2 * P
    assert "secret" not in repr(Namespace(model="m", format=FORMAT, salt="secret"))
    engine.check_quiet()


def test_a07_absent_empty_and_joined_values_are_told_apart() -> None:
    """An extra of None differs from ""; an empty salt is none; ("a", "bc") differs from ("ab", "c")."""

    def space(salt: str | None = None, **extras: str | None) -> bytes:
        return Namespace(model="m", format=FORMAT, salt=salt, extras=extras).digest

    assert len({space(), space(key=None), space(key=""), space(key="x")}) == 4
    assert space(salt="") == space()
    assert space(a="bc") != space(ab="c")
    # A token list never borrows from the namespace before it.
    longer = Namespace(model="m", format=FORMAT, salt="a" + "\x01\0\0\0")
    shorter = Namespace(model="m", format=FORMAT, salt="a")
    assert set(_names([1, 2, 3, 4], namespace=shorter)).isdisjoint(_names([2, 3, 4, 5], namespace=longer))
    engine = Engine(page_count=16)
    engine.serve(range(9), namespace=Namespace(model="m", format=FORMAT, extras={"key": None}))
    assert engine.cached(range(9), namespace=Namespace(model="m", format=FORMAT, extras={"key": ""})) == 0
    engine.serve(range(9), namespace=Namespace(model="m", format=FORMAT, salt=""))
    assert engine.cached(range(9), namespace=Namespace(model="m", format=FORMAT)) == 2 * P


def test_a08_an_adapter_named_like_a_salt_does_not_collide() -> None:
    """Fields are typed."""
    engine = Engine(page_count=16)
    engine.serve(range(9), namespace=Namespace(model="m", format=FORMAT, salt="x"))
    assert engine.serve(range(9), namespace=Namespace(model="m", format=FORMAT, adapter="x")) == 0
    engine.check_quiet()


def test_a09_the_same_adapter_name_with_another_version_does_not_hit() -> None:
    """Whoever serves an adapter under its old name changes its revision."""
    engine = Engine(page_count=16)
    for revision in ("/m/ad@1", "/m/ad@2", None):
        space = Namespace(model="m", format=FORMAT, adapter="ad", adapter_revision=revision)
        assert engine.serve(range(9), namespace=space) == 0
        assert engine.serve(range(9), namespace=space) == 2 * P
    engine.check_quiet()


def test_a10_an_image_hits_at_its_own_offset_only() -> None:
    """The same image one placeholder further on is another block; at the same offset it hits."""
    engine = Engine(page_count=32)
    prompt = [1, *[7] * 10, 2]
    image = _digest(b"image")
    for start in range(1, 5):
        media = [MediaSpan(start=start, token_count=6, digest=image)]
        assert engine.serve(prompt, media=media) <= start // P * P
        assert engine.serve(prompt, media=media) == 2 * P
    engine.check_quiet()


def test_a11_the_bytes_of_prompt_embeddings_decide() -> None:
    """Embeddings instead of ids: a digest of their bytes as media over placeholder tokens."""
    engine = Engine(page_count=32)
    embeddings = np.random.default_rng(11).standard_normal((9, 8)).astype(np.float32)

    def serve(values: np.ndarray) -> int:
        media = [MediaSpan(start=0, token_count=len(values), digest=_digest(values.tobytes()))]
        return engine.serve([0] * len(values), media=media)

    assert serve(embeddings) == 0
    assert serve(embeddings) == 2 * P
    changed = embeddings.copy()
    changed[8, 7] = np.nextafter(changed[8, 7], np.float32(9))
    assert serve(changed) == 0
    assert engine.serve([0] * 9) == 0
    engine.check_quiet()


def test_a12_who_asks_is_no_part_of_the_identity() -> None:
    """The request's id is attribution only."""
    engine = Engine(page_count=16)
    engine.serve(range(9), request_id="session-1")
    assert engine.serve(range(9), request_id="session-2") == 2 * P
    assert engine.serve(range(9)) == 2 * P
    engine.check_quiet()


def test_a13_two_processes_agree_on_names() -> None:
    """Cryptographic names with no seed of their own: equal in a fresh process with another hash seed."""
    program = (
        "from kvstore import KVStore, Prompt\n"
        "from transfer import VirtualPagePool\n"
        "store = KVStore(VirtualPagePool(page_count=1, block_tokens=4))\n"
        "print(b''.join(store.block_names(Prompt.of_tokens(range(13)))).hex())\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "13", "PYTHONPATH": str(Path(__file__).parents[2])}
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True, timeout=60
    )
    assert ran.stdout.strip() == b"".join(_names(list(range(13)))).hex()


def test_a13_without_a_namespace_a_name_is_the_page_hash_of_sglang() -> None:
    """Golden values that SGLang 0.5.23 made itself: pages of 4 tokens, nothing before the first."""
    symbols = Prompt.of_tokens([1, 2, 3, 4, 5, 6, 7, 8]).block_symbols(FORMAT)
    assert chain_names(b"", symbols, FORMAT.symbol_bytes).hex() == (
        "cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72"
        "4ebfa8a1f3c341517621838c6e1b9aa350307e3f00b3cbd1a07ef740f54396d6"
    )


@pytest.mark.parametrize("tokens", range(1, 3 * P + 1))
def test_a14_a_name_depends_on_nothing_that_comes_after_its_block(tokens: int) -> None:
    """We have no look-ahead hashing (README.md): a block has its name as soon as it is full, and keeps it."""
    names = _names(list(range(3 * P)))
    assert _names(list(range(tokens))) == names[: tokens // P]
    assert _names([*range(tokens), 99, 98, 97, 96])[: tokens // P] == names[: tokens // P]


def test_a15_token_by_token_equals_at_once() -> None:
    """A request that learns its tokens one by one ends up under the same names and in the same run."""
    engine = Engine(page_count=32)
    tokens = list(range(50, 50 + 5 * P))
    with engine.begin(tokens[:1]) as request:
        request.decode([*tokens[1:], 99])
    assert engine.cached(tokens) == 5 * P
    assert engine.store.block_names(Prompt.of_tokens(tokens)) == _names(tokens)
    assert engine.store.stats().nodes == 1
    assert engine.serve([*tokens, 7]) == 5 * P
    engine.check_quiet()


def test_a15_names_that_were_kept_equal_names_computed_anew() -> None:
    """Names kept with a run survive its growth, splits, merges and evictions."""
    engine = Engine(page_count=64)
    tokens = list(range(10 * P))
    ask = engine.store.block_names
    engine.serve(tokens[: 4 * P])
    assert ask(Prompt.of_tokens(tokens[: 4 * P])) == _names(tokens[: 4 * P])
    engine.serve(tokens)
    assert ask(Prompt.of_tokens(tokens)) == _names(tokens)
    branch = [*tokens[: 3 * P], *range(500, 500 + 3 * P)]
    engine.serve(branch)
    assert ask(Prompt.of_tokens(branch)) == _names(branch)
    assert ask(Prompt.of_tokens(tokens)) == _names(tokens)
    engine.serve(branch)
    engine.evict(8)
    for prompt in (tokens, branch, tokens[: 2 * P], [*branch, *range(8)]):
        assert ask(Prompt.of_tokens(prompt)) == _names(prompt)
        engine.serve(prompt)
        assert ask(Prompt.of_tokens(prompt)) == _names(prompt)
    engine.check_quiet()


@pytest.mark.parametrize("kept", range(1, 6))
def test_a15_names_go_with_the_blocks_that_they_name(kept: int) -> None:
    """A run loses its tail and goes on another way: the names of the old tail don't stand for the new one."""
    engine = Engine(page_count=16)
    tokens = list(range(6 * P))
    engine.serve(tokens)
    engine.store.block_names(Prompt.of_tokens(tokens))
    engine.evict(6 - kept)
    other = [*tokens[: kept * P], *range(100, 100 + 3 * P)]
    engine.serve(other)
    assert engine.store.stats().nodes == 1
    assert engine.store.block_names(Prompt.of_tokens(other)) == _names(other)
    engine.check_quiet()


@pytest.mark.parametrize("inside", range(1, 4 * P))
def test_a16_a_match_inside_an_edge_is_page_aligned_and_splits_soundly(inside: int) -> None:
    """A look-up that ends inside a run: whole pages; the size of the tree is unchanged, both parts still match."""
    engine = Engine(page_count=32)
    prompt = list(range(4 * P))
    engine.serve(prompt)
    before = engine.store.stats()
    assert engine.cached([*prompt[:inside], 999]) == inside // P * P
    assert engine.store.stats() == before, "a pure query has changed something"
    with engine.begin([*prompt[:inside], 999, 998]) as request:
        assert request.sequence.matched_tokens == inside // P * P
        after = engine.store.stats()
        assert after.cached_pages == before.cached_pages
        assert after.nodes == before.nodes + (inside >= P)
        engine.check()
        assert engine.cached(prompt) == 4 * P
    engine.check_quiet()


def test_a17_with_caching_disabled_nothing_hits_and_pages_return_at_once() -> None:
    """Disabled is ``skip_read`` and ``skip_write`` (README.md), even when the cache has the prompt."""
    engine = Engine(page_count=8)
    engine.serve(range(9))
    cached = engine.store.stats().cached_pages
    for _ in range(3):
        with engine.begin(range(13), skip_read=True, skip_write=True) as request:
            assert request.sequence.cached_tokens == 0
            request.prefill()
            request.decode(range(4))
            assert request.sequence.committed_tokens == 0
            engine.check()
        assert engine.store.stats().cached_pages == cached
        assert engine.store.stats().free_pages == 8 - cached
        assert engine.cached(range(13)) == 8
    engine.check_quiet()


def test_a17_reading_and_writing_can_be_skipped_one_by_one() -> None:
    """Read but don't keep; keep but don't read."""
    engine = Engine(page_count=16)
    engine.serve(range(9))
    with engine.begin([*range(12), 99], skip_write=True) as request:
        assert request.sequence.cached_tokens == 2 * P
        request.prefill()
        engine.check()
    assert engine.cached([*range(12), 99]) == 2 * P
    with engine.begin([*range(12), 99], skip_read=True) as request:
        assert request.sequence.cached_tokens == 0
        request.prefill()
        engine.check()
    assert engine.cached([*range(12), 99]) == 3 * P
    assert engine.store.stats().cached_pages == 3
    engine.check_quiet()
