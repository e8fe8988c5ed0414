"""The store, least recently used, is a plain list of blocks in which a request touches its blocks deepest first.

No tree, no runs, no pins of ancestors in the list: what a tree must add to be exact has to come out by itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kvstore import BlockFormat, KVStore, Namespace, Prompt, Sequence
from transfer import VirtualPagePool

_BLOCK_TOKENS = 2

Prefix = tuple[int, ...]


@dataclass(slots=True)
class BlockList:
    """Blocks, named by their prefixes, coldest first."""

    capacity: int
    blocks: OrderedDict[Prefix, None] = field(default_factory=OrderedDict)

    def hits(self, prompt: Prefix) -> int:
        return next((end for end in range(len(prompt)) if prompt[: end + 1] not in self.blocks), len(prompt))

    def use(self, prompt: Prefix, running: Items[Prefix] = ()) -> None:
        """A request ends while others run: touch deepest first, then cut at the cold end what no other request uses."""
        for end in range(len(prompt), 0, -1):
            self.blocks[prompt[:end]] = None
            self.blocks.move_to_end(prompt[:end])
        in_use = {other[:end] for other in running for end in range(1, len(other) + 1)}
        for block in list(self.blocks):
            if len(self.blocks.keys() | in_use) <= self.capacity:
                return
            if block not in in_use:
                del self.blocks[block]


def _prompts(longest: int) -> st.SearchStrategy[Prefix]:
    return st.lists(st.integers(0, 2), min_size=1, max_size=longest).map(tuple)


def _store(capacity: int, room: int, namespace: Namespace) -> KVStore:
    pool = VirtualPagePool(page_count=capacity + room, block_tokens=_BLOCK_TOKENS)
    return KVStore(pool, namespace=namespace, retained_page_count_max=capacity)


def _of_tokens(prompt: Prefix) -> Prompt:
    return Prompt.of_tokens(np.repeat(np.array(prompt, np.int32), _BLOCK_TOKENS))


def _of_names(prompt: Prefix) -> Prompt:
    """Names stand for whole prefixes: the digits of one, behind a 1."""
    names = [int("1" + "".join(map(str, prompt[:end]))) for end in range(1, len(prompt) + 1)]
    return Prompt.of_names(np.array(names, np.int64), token_count=_BLOCK_TOKENS * len(prompt))


def _compute(sequence: Sequence) -> None:
    sequence.reserve(through=sequence.token_count)
    sequence.commit(through=sequence.token_count)


@given(st.lists(_prompts(8), max_size=40), st.integers(0, 20))
def test_one_at_a_time_hits_what_the_list_hits(prompts: list[Prefix], capacity: int) -> None:
    store = _store(capacity, 8, Namespace(model="m", format=BlockFormat.of_tokens(_BLOCK_TOKENS)))
    blocks = BlockList(capacity)
    for prompt in prompts:
        with store.begin(_of_tokens(prompt)) as sequence:
            assert sequence.matched_tokens == blocks.hits(prompt) * _BLOCK_TOKENS
            _compute(sequence)
        blocks.use(prompt)
        assert store.stats().cached_pages == len(blocks.blocks)
    store.audit()


@given(st.lists(_prompts(8), max_size=40), st.integers(0, 20))
def test_names_hit_what_tokens_hit(prompts: list[Prefix], capacity: int) -> None:
    blocks = BlockFormat.of_names(symbol_bytes=8, block_tokens=_BLOCK_TOKENS)
    named = _store(capacity, 8, Namespace(model="m", format=blocks))
    spelled = _store(capacity, 8, Namespace(model="m", format=BlockFormat.of_tokens(_BLOCK_TOKENS)))
    for prompt in prompts:
        with named.begin(_of_names(prompt)) as by_name, spelled.begin(_of_tokens(prompt)) as by_tokens:
            assert by_name.matched_tokens == by_tokens.matched_tokens
            _compute(by_name)
            _compute(by_tokens)
    assert named.stats() == spelled.stats()
    named.audit()


@given(
    st.lists(st.tuples(_prompts(6), st.integers(0, 3), st.booleans()), max_size=40),
    st.integers(0, 16),
    st.integers(1, 4),
)
def test_several_at_a_time_hit_what_the_list_hits(
    requests: list[tuple[Prefix, int, bool]], capacity: int, together: int
) -> None:
    """Requests end in any order; some compute at once, some only at their end. What runs is never cut."""
    store = _store(capacity, 6 * together, Namespace(model="m", format=BlockFormat.of_tokens(_BLOCK_TOKENS)))
    blocks = BlockList(capacity)
    running: list[tuple[Prefix, Sequence]] = []

    def end(which: int) -> None:
        prompt, sequence = running.pop(which % len(running))
        _compute(sequence)
        sequence.release()
        blocks.use(prompt, [_held(*other) for other in running])

    for prompt, which, at_once in requests:
        sequence = store.begin(_of_tokens(prompt))
        published = [
            prefix[:end] for prefix in (_held(*other) for other in running) for end in range(1, len(prefix) + 1)
        ]
        known = BlockList(0, OrderedDict.fromkeys([*blocks.blocks, *published]))
        assert sequence.matched_tokens == known.hits(prompt) * _BLOCK_TOKENS
        if at_once:
            _compute(sequence)
        running.append((prompt, sequence))
        if len(running) == together:
            end(which)
    while running:
        end(0)
    store.audit()
    assert store.stats().cached_pages == len(blocks.blocks)


def _held(prompt: Prefix, sequence: Sequence) -> Prefix:
    """What a running request found or published."""
    return prompt[: max(sequence.matched_tokens, sequence.committed_tokens) // _BLOCK_TOKENS]
