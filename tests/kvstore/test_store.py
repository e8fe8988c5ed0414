"""The facade: settings, requests of every kind and size, what is kept, what is counted, what is cleared."""

from __future__ import annotations

import hashlib
import threading
from array import array
from collections.abc import Sequence as Items

import numpy as np
import pytest

from eviction import FifoPolicy, LruPolicy
from kvstore import (
    BlockAllocator,
    BlockFormat,
    ConfigError,
    InvalidRequest,
    KVStore,
    KVStoreError,
    Namespace,
    OutOfPages,
    Prompt,
    ResetRefused,
    Sequence,
)
from transfer import VirtualPagePool

_P = 4  #: tokens of a block


def _store(page_count: int = 16, block_tokens: int = _P, **more: object) -> KVStore:
    return KVStore(VirtualPagePool(page_count=page_count, block_tokens=block_tokens), **more)


def _compute(sequence: Sequence) -> None:
    sequence.reserve(through=sequence.token_count)
    sequence.commit(through=sequence.token_count)


def _serve(store: KVStore, tokens: Items[int] | np.ndarray, **more: object) -> int:
    """Run a whole request; returns how many tokens it found."""
    with store.begin(Prompt.of_tokens(tokens), **more) as sequence:
        _compute(sequence)
        return sequence.matched_tokens


@pytest.mark.parametrize("block_tokens", [1, 3, 16, 64])
def test_every_page_size_works(block_tokens: int) -> None:
    store = _store(page_count=400, block_tokens=block_tokens)
    for tokens in range(1, 4 * block_tokens + 2, max(1, block_tokens // 4)):
        assert _serve(store, [tokens] * tokens) == 0
        assert _serve(store, [tokens] * tokens) == tokens // block_tokens * block_tokens
    store.audit()


@pytest.mark.parametrize("width", [4, 8, 32])
@pytest.mark.parametrize("block_tokens", [1, 3, 16, 64])
def test_foreign_names_of_any_width_work_with_every_page_size(width: int, block_tokens: int) -> None:
    space = Namespace(model="m", format=BlockFormat.of_names(symbol_bytes=width, block_tokens=block_tokens))
    store = _store(page_count=40, block_tokens=block_tokens, namespace=space)
    names = [hashlib.sha256(bytes([number])).digest()[:width] for number in range(10)]
    for reach, found in ((6, 0), (10, 6), (8, 8), (10, 10)):
        prompt = Prompt.of_names(names[:reach], token_count=reach * block_tokens)
        with store.begin(prompt) as sequence:
            assert sequence.matched_tokens == found * block_tokens
            _compute(sequence)
    assert store.stats().cached_pages == 10
    store.audit()


def test_a_prompt_of_a_million_tokens_is_one_run() -> None:
    store = _store(page_count=70_000, block_tokens=16)
    tokens = np.arange(1_000_000, dtype=np.int32)
    assert _serve(store, tokens) == 0
    assert store.stats().nodes == 1
    assert _serve(store, tokens) == 1_000_000
    tokens[-1] += 1
    assert _serve(store, tokens) == 1_000_000 - 16
    assert store.stats().cached_pages == 62_501
    store.audit()


@pytest.mark.parametrize("prompt", [[1, 2, 3], np.array([1, 2]), "text", b"bytes", None, 7])
def test_only_a_prompt_is_begun_or_looked_up(prompt: object) -> None:
    store = _store()
    for call in (store.begin, store.peek, store.explain, store.block_names):
        with pytest.raises(InvalidRequest, match="Prompt"):
            call(prompt)
    assert store.stats().namespaces == 0


def test_a_prompt_of_the_wrong_kind_is_refused_and_leaves_nothing_behind() -> None:
    store = _store()
    named = Prompt.of_names([b"aa"], token_count=4)
    for call in (store.begin, store.peek, store.explain, store.block_names):
        with pytest.raises(InvalidRequest, match="names"):
            call(named)
    assert (store.stats().running, store.stats().namespaces) == (0, 0)
    store.audit()


def test_a_namespace_of_another_block_size_is_refused_and_leaves_nothing_behind() -> None:
    store = _store()
    wide = Namespace(model="m", format=BlockFormat.of_tokens(8))
    for call in (store.begin, store.peek, store.explain, store.block_names):
        with pytest.raises(ConfigError, match="8 tokens do not fit pages of 4"):
            call(Prompt.of_tokens([1]), namespace=wide)
    with pytest.raises(ConfigError):
        _store(namespace=wide)
    assert store.stats().namespaces == 0


def test_an_engine_that_changes_its_buffer_between_begin_and_commit_changes_nothing() -> None:
    store, buffer = _store(), np.arange(8, dtype=np.int32)
    with store.begin(Prompt.of_tokens(buffer)) as sequence:
        buffer[:] = 99
        _compute(sequence)
    assert store.peek(Prompt.of_tokens(range(8))) == 8
    assert store.peek(Prompt.of_tokens(buffer)) == 0


def test_a_prompt_may_be_begun_again_and_in_several_namespaces() -> None:
    store, prompt = _store(), Prompt.of_tokens(range(8))
    spaces = [Namespace(model="m", format=BlockFormat.of_tokens(_P), salt=salt) for salt in (None, "a", "b")]
    for round_number in range(2):
        for space in spaces:
            with store.begin(prompt, namespace=space) as sequence:
                assert sequence.matched_tokens == 8 * round_number
                _compute(sequence)
    assert (store.stats().cached_pages, store.stats().namespaces) == (6, 3)


def test_namespaces_see_nothing_of_each_other() -> None:
    store = _store()
    mine, theirs = (Namespace(model="m", format=BlockFormat.of_tokens(_P), salt=salt) for salt in ("a", "b"))
    _serve(store, range(8), namespace=mine)
    assert store.peek(Prompt.of_tokens(range(8)), namespace=theirs) == 0
    assert store.peek(Prompt.of_tokens(range(8))) == 0
    assert _serve(store, range(8), namespace=theirs) == 0


def test_a_namespace_vanishes_with_its_last_block_and_its_last_request() -> None:
    store = _store(page_count=4)
    other = Namespace(model="m", format=BlockFormat.of_tokens(_P), salt="a")
    sequence = store.begin(Prompt.of_tokens([1]), namespace=other)
    assert store.stats().namespaces == 1
    sequence.release()
    assert store.stats().namespaces == 0
    _serve(store, range(8), namespace=other)
    assert store.stats().namespaces == 1
    _serve(store, range(100, 116))
    assert (store.stats().namespaces, store.stats().cached_pages) == (1, 4)
    assert store.peek(Prompt.of_tokens(range(8)), namespace=other) == 0


def test_peek_pins_touches_and_counts_nothing() -> None:
    store = _store(page_count=3)
    _serve(store, [1] * 4)
    _serve(store, [2] * 4)
    before = store.stats()
    assert store.peek(Prompt.of_tokens([1] * 7)) == 4
    assert store.stats() == before
    _serve(store, [3] * 8)
    assert store.peek(Prompt.of_tokens([1] * 4)) == 0, "the look did not renew it"
    assert store.peek(Prompt.of_tokens([2] * 4)) == 4


def test_what_was_used_last_stays_and_first_in_goes_first_out() -> None:
    for policy, kept, gone in ((LruPolicy(), 1, 2), (FifoPolicy(), 2, 1)):
        store = _store(page_count=3, policy=policy)
        for number in (1, 2, 1):
            _serve(store, [number] * 4)
        _serve(store, [3] * 8)
        assert store.peek(Prompt.of_tokens([kept] * 4)) == 4
        assert store.peek(Prompt.of_tokens([gone] * 4)) == 0
        assert store.stats().policy == policy.name


@pytest.mark.parametrize("retained", [0, 1, 3, 5, 16])
def test_no_more_than_asked_stays_when_all_have_ended(retained: int) -> None:
    store = _store(retained_page_count_max=retained)
    for number in range(4):
        _serve(store, [number] * 12)
    stats = store.stats()
    assert stats.cached_pages == min(retained, 12)
    assert stats.evicted_blocks["retention"] == 12 - stats.cached_pages


def test_what_runs_is_never_trimmed() -> None:
    store = _store(retained_page_count_max=1)
    held = store.begin(Prompt.of_tokens(range(12)))
    _compute(held)
    _serve(store, [9] * 8)
    assert store.stats().cached_pages == 3
    held.release()
    assert store.stats().cached_pages == 1
    assert store.peek(Prompt.of_tokens(range(12))) == 4, "the tail goes before the head"


def test_retention_is_enforced_at_a_park_too() -> None:
    store = _store(retained_page_count_max=1)
    sequence = store.begin(Prompt.of_tokens(range(12)))
    _compute(sequence)
    sequence.park()
    assert store.stats().cached_pages == 1
    assert sequence.resume() == 4
    sequence.release()


@pytest.mark.parametrize("retained", [-1, 1.5, True, "4"])
def test_a_limit_that_is_none_is_refused(retained: object) -> None:
    with pytest.raises(ConfigError, match="retained_page_count_max"):
        _store(retained_page_count_max=retained)


class _Engine:
    """An engine's own free list: the highest page first, some pages kept for itself."""

    def __init__(self, page_count: int, kept: int) -> None:
        self.page_count = page_count
        self.free = list(range(page_count - kept))

    @property
    def free_count(self) -> int:
        return len(self.free)

    def take(self, count: int) -> array[int]:
        if count > len(self.free):
            raise OutOfPages(needed=count, free=len(self.free), evictable=0)
        return array("i", [self.free.pop() for _ in range(count)])

    def give(self, pages: Items[int]) -> None:
        assert set(pages).isdisjoint(self.free)
        self.free += pages


def test_an_engine_may_bring_its_own_free_list() -> None:
    engine = _Engine(8, kept=2)
    store = _store(page_count=8, allocator=engine)
    with store.begin(Prompt.of_tokens(range(9))) as sequence:
        _compute(sequence)
        assert sequence.page_table.tolist() == [5, 4, 3]
        assert store.stats().free_pages == len(engine.free) == 3
    assert sorted(engine.free) == [0, 1, 2, 3]
    assert store.stats().reserved_pages == 2, "the engine's own"
    _serve(store, range(50, 74))
    with store.begin(Prompt.of_tokens([1])) as sequence, pytest.raises(OutOfPages):
        sequence.reserve(through=7 * _P)
    store.audit()
    store.reset()
    assert sorted(engine.free) == list(range(6))


def test_a_free_list_may_not_be_larger_than_the_pool() -> None:
    with pytest.raises(ConfigError, match="9 pages, the pool has 8"):
        _store(page_count=8, allocator=BlockAllocator(9))
    assert _store(page_count=8, allocator=BlockAllocator(7)).stats().page_count == 7


class _Liar(_Engine):
    """Hands out the same pages again and again."""

    def take(self, count: int) -> array[int]:
        return array("i", range(count))


def test_an_audit_finds_a_page_with_two_owners() -> None:
    store = _store(allocator=_Liar(16, kept=0))
    first, second = store.begin(Prompt.of_tokens([1])), store.begin(Prompt.of_tokens([2]))
    first.reserve(through=4)
    store.audit()
    second.reserve(through=4)
    with pytest.raises(AssertionError, match="two owners"):
        store.audit()


def test_a_reset_forgets_everything_and_refuses_while_something_runs() -> None:
    store = _store()
    _serve(store, range(12))
    _serve(store, range(8), namespace=Namespace(model="m", format=BlockFormat.of_tokens(_P), salt="a"))
    sequence = store.begin(Prompt.of_tokens(range(5)))
    before = store.stats()
    with pytest.raises(ResetRefused) as refused:
        store.reset()
    assert refused.value.running == 1
    assert store.stats() == before
    sequence.release()
    assert store.reset() == 5
    stats = store.stats()
    assert (stats.free_pages, stats.cached_pages, stats.nodes, stats.namespaces) == (16, 0, 0, 0)
    assert stats.evicted_blocks == {"capacity": 0, "retention": 0, "reset": 5}
    assert store.reset() == 0
    assert _serve(store, range(12)) == 0


def test_a_parked_request_keeps_a_reset_waiting() -> None:
    store = _store()
    sequence = store.begin(Prompt.of_tokens(range(5)))
    sequence.park()
    with pytest.raises(ResetRefused):
        store.reset()
    sequence.release()
    store.reset()


def test_a_dropped_request_does_not() -> None:
    store = _store()
    sequence = store.begin(Prompt.of_tokens(range(5)))
    sequence.reserve(through=5)
    del sequence
    assert store.reset() == 0


def test_counters_tell_what_happened() -> None:
    store = _store()
    _serve(store, range(9))
    _serve(store, range(9))
    _serve(store, range(8))
    stats = store.stats()
    assert (stats.requests, stats.queried_tokens, stats.hit_tokens) == (3, 26, 12)
    assert (stats.published_blocks, stats.duplicate_blocks) == (2, 1)
    assert (stats.cached_pages, stats.free_pages, stats.reserved_pages) == (2, 14, 0)
    assert stats.token_hit_rate == 12 / 26
    assert _store().stats().token_hit_rate == 0.0


def test_a_snapshot_does_not_change() -> None:
    store = _store()
    before = store.stats()
    _serve(store, range(9))
    assert before.requests == 0
    assert sum(before.evicted_blocks.values()) == 0


def test_a_request_knows_when_it_began() -> None:
    clock = iter([10, 20])
    store = _store(now_ns=lambda: next(clock))
    assert [store.begin(Prompt.of_tokens([1]), request_id=name).begun_ns for name in "ab"] == [10, 20]


def test_a_store_shows_what_it_holds() -> None:
    store = _store()
    _serve(store, range(9))
    with store.begin(Prompt.of_tokens([1])):
        assert repr(store) == "KVStore(16 pages of 4 tokens: 2 cached, 14 free; 1 running)"


def test_everything_raised_on_purpose_is_one_family() -> None:
    store = _store(page_count=1)
    sequence = store.begin(Prompt.of_tokens([1]))
    for call in (
        lambda: sequence.reserve(through=9),
        lambda: sequence.commit(through=9),
        store.reset,
        lambda: store.peek(None),
        lambda: Prompt.of_tokens([]),
    ):
        with pytest.raises(KVStoreError):
            call()


def test_a_request_may_move_from_thread_to_thread() -> None:
    store = _store()
    sequence = store.begin(Prompt.of_tokens(range(9)))
    for call in (lambda: _compute(sequence), sequence.park, sequence.resume, sequence.release):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert store.stats().cached_pages == 2
    store.audit()


@pytest.mark.parametrize("namespace", ["tenant", 0, b"", object()])
def test_a_namespace_is_a_namespace(namespace: object) -> None:
    store = KVStore(VirtualPagePool(page_count=4, block_tokens=4))
    for ask in (store.begin, store.peek, store.explain, store.block_names):
        with pytest.raises(InvalidRequest, match="need a Namespace"):
            ask(Prompt.of_tokens([1]), namespace=namespace)  # type: ignore[arg-type]
    assert store.stats().namespaces == 0


@pytest.mark.parametrize(
    "wrong", [{"policy": "lru"}, {"policy": LruPolicy}, {"namespace": "m"}, {"allocator": [1, 2, 3]}], ids=str
)
def test_a_part_that_is_none_is_refused_when_the_store_is_made(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="must be a"):
        KVStore(VirtualPagePool(page_count=4, block_tokens=4), **wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="page pool"):
        KVStore(None)  # type: ignore[arg-type]


def test_what_is_shown_of_an_eviction_holds_no_tokens() -> None:
    store = KVStore(VirtualPagePool(page_count=1, block_tokens=4))
    secret = [0x53455245] * 4
    for tokens in (secret, [1, 2, 3, 4]):
        with store.begin(Prompt.of_tokens(tokens)) as sequence:
            sequence.reserve(through=4)
            sequence.commit(through=4)
    shown = repr(store.explain(Prompt.of_tokens(secret)))
    assert "Eviction(from block 0, capacity" in shown
    assert "ERES" not in shown
