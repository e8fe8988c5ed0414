"""What matches? The longest leading run of whole blocks, wherever edges end and however long they are."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kvstore import KVStore, Prompt
from transfer import VirtualPagePool


def _store(block_tokens: int, page_count: int = 4096) -> KVStore:
    return KVStore(VirtualPagePool(page_count=page_count, block_tokens=block_tokens))


def _serve(store: KVStore, tokens: list[int] | np.ndarray) -> None:
    with store.begin(Prompt.of_tokens(tokens)) as sequence:
        sequence.reserve(through=len(tokens))
        sequence.commit(through=len(tokens))


def _common(left: np.ndarray, right: np.ndarray) -> int:
    limit = min(len(left), len(right))
    differing = np.flatnonzero(left[:limit] != right[:limit])
    return int(differing[0]) if differing.size else limit


@pytest.mark.parametrize("block_tokens", [1, 3, 16, 64])
def test_a_prompt_that_leaves_a_long_run_anywhere_matches_up_to_there(block_tokens: int) -> None:
    """Edges are compared in steps of some kilobytes; a difference may lie just before, on and behind each step."""
    tokens = np.arange(1, 4001, dtype=np.int32)
    store = _store(block_tokens)
    _serve(store, tokens)
    cuts = {0, 1, len(tokens) - 1, *range(0, 4000, 499)}
    for step in range(0, 4 * len(tokens), 1024):
        cuts |= {step // 4 + offset for offset in (-1, 0, 1) if 0 <= step // 4 + offset < len(tokens)}
    for cut in cuts:
        other = tokens.copy()
        other[cut] = 5_000
        assert store.peek(Prompt.of_tokens(other)) == cut // block_tokens * block_tokens
    assert store.peek(Prompt.of_tokens(tokens)) == len(tokens) // block_tokens * block_tokens
    assert store.stats().nodes == 1, "a look changes nothing"


@pytest.mark.parametrize("block_tokens", [1, 3, 16, 64])
def test_the_same_holds_while_pins_cut_the_run_to_pieces(block_tokens: int) -> None:
    chance = random.Random(block_tokens)
    tokens = np.arange(1, 1001, dtype=np.int32)
    store = _store(block_tokens)
    _serve(store, tokens)
    for _ in range(60):
        cut = chance.randrange(len(tokens))
        other = tokens.copy()
        other[cut:] += 5_000
        with store.begin(Prompt.of_tokens(other)) as sequence:
            assert sequence.matched_tokens == cut // block_tokens * block_tokens
        store.audit()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("block_tokens", [1, 2, 5])
def test_a_forest_of_random_prompts_matches_what_a_list_matches(seed: int, block_tokens: int) -> None:
    generator = np.random.default_rng(seed)
    served: list[np.ndarray] = []
    store = _store(block_tokens)
    for _ in range(80):
        tokens = np.repeat(generator.integers(0, 2, generator.integers(1, 14)), 2).astype(np.int32)
        whole = len(tokens) // block_tokens * block_tokens
        known = max((_common(tokens[:whole], other) for other in served), default=0) // block_tokens * block_tokens
        assert store.peek(Prompt.of_tokens(tokens)) == known
        with store.begin(Prompt.of_tokens(tokens)) as sequence:
            assert sequence.matched_tokens == known
            sequence.reserve(through=len(tokens))
            sequence.commit(through=len(tokens))
        served.append(tokens[:whole])
    store.audit()
    assert store.stats().cached_pages == len(
        {tuple(t[:n]) for t in served for n in range(block_tokens, len(t) + 1, block_tokens)}
    )


def test_blocks_that_share_all_but_their_last_token_are_different() -> None:
    store = _store(4)
    for last in range(300):
        _serve(store, [1, 2, 3, last])
    assert store.stats().nodes == store.stats().cached_pages == 300
    for last in (0, 150, 299):
        assert store.peek(Prompt.of_tokens([1, 2, 3, last])) == 4
    assert store.peek(Prompt.of_tokens([1, 2, 3, 300])) == 0


def test_the_same_block_at_another_depth_is_another_block() -> None:
    store = _store(2)
    _serve(store, [7, 7, 7, 7, 7, 7])
    assert store.peek(Prompt.of_tokens([7, 7])) == 2
    assert store.peek(Prompt.of_tokens([8, 8, 7, 7])) == 0
    assert store.peek(Prompt.of_tokens([7] * 7)) == store.peek(Prompt.of_tokens([7] * 20)) == 6


def test_tokens_that_line_up_only_across_blocks_do_not_match() -> None:
    store = _store(2)
    _serve(store, [1, 2, 3, 4, 5, 6])
    assert store.peek(Prompt.of_tokens([2, 3, 4, 5])) == 0
    # Bytes of 256 and 1 next to each other hold those of 1 and 256 one byte further.
    _serve(store, [256, 256])
    assert store.peek(Prompt.of_tokens([1, 1])) == 0


def test_a_chain_of_many_runs_is_followed_to_its_end() -> None:
    store = _store(1)
    tokens = list(range(200))
    for end in range(200, 0, -1):  # each prompt leaves the common path one block earlier: 200 runs in a row
        _serve(store, [*tokens[:end], 1000 + end])
    assert store.stats().nodes >= 200
    for end in (1, 57, 199, 200):
        assert store.peek(Prompt.of_tokens([*tokens[:end], 5])) == end
        assert store.peek(Prompt.of_tokens([*tokens[:end], 1000 + end, 5])) == end + 1
    store.audit()


def test_pages_of_a_path_come_in_token_order_through_every_split() -> None:
    store = _store(2)
    with store.begin(Prompt.of_tokens(range(40))) as sequence:
        sequence.reserve(through=40)
        sequence.commit(through=40)
        pages = sequence.page_table
    for end in (38, 4, 20, 12, 6, 40):
        with store.begin(Prompt.of_tokens([*range(end), 99, 99])) as sequence:
            assert sequence.page_table.tolist() == pages[: end // 2].tolist()
        store.audit()


def test_a_head_that_lost_its_tail_matches_as_far_as_it_goes() -> None:
    store = _store(2, page_count=10)
    _serve(store, list(range(20)))
    with store.begin(Prompt.of_tokens([500])) as hog:
        hog.reserve(through=2 * 7)
        assert store.peek(Prompt.of_tokens(range(20))) == 2 * 3
        store.audit()
    _serve(store, list(range(20)))
    assert store.peek(Prompt.of_tokens(range(20))) == 20
    store.audit()
