"""What comes from outside in the middle of a call: re-entrance, interrupts, parts that raise, copies."""

from __future__ import annotations

import copy
import gc
from array import array
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from eviction import LruPolicy
from kvstore import (
    BlockAllocator,
    InvalidRequest,
    KVStore,
    OutOfPages,
    Prompt,
    ResetRefused,
    Sequence,
    StoreBroken,
)
from transfer import VirtualPagePool

_P = 4


class Meddling:
    """Least recently used, but the first ``insert`` does something else before it does its work."""

    name = "meddling"

    def __init__(self) -> None:
        self._inner: LruPolicy[object] = LruPolicy()
        self.meddle: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def insert(self, key: object, *, first_block: int, block_count: int, ghost_id: int) -> None:
        meddle, self.meddle = self.meddle, None
        if meddle is not None:
            meddle()
        self._inner.insert(key, first_block=first_block, block_count=block_count, ghost_id=ghost_id)


def _store(policy: Meddling, pages: int = 8) -> KVStore:
    return KVStore(VirtualPagePool(page_count=pages, block_tokens=_P), policy=policy)  # type: ignore[arg-type]


def _begun(store: KVStore, *tokens: int) -> Sequence:
    sequence = store.begin(Prompt.of_tokens(tokens))
    sequence.reserve(through=len(tokens))
    return sequence


@pytest.mark.parametrize("end", ["release", "abandon"])
def test_a_sequence_may_end_inside_another_call_and_is_ended_by_the_next(end: str) -> None:
    """As when the collector closes a generator that holds one, in the middle of an allocation under the lock."""
    policy = Meddling()
    store = _store(policy)
    other, sequence = _begun(store, 9, 9), _begun(store, 1, 2, 3, 4, 5)
    policy.meddle = getattr(other, end)
    sequence.commit(through=5)
    assert store.stats().running == 1
    assert store.stats().ended_unreleased == 0
    store.audit()
    sequence.release()
    assert store.stats().running == 0
    store.audit()


def test_a_generator_that_the_collector_closes_anywhere_does_not_hang() -> None:
    store = KVStore(VirtualPagePool(page_count=4096, block_tokens=_P))

    def stream() -> Iterator[int]:
        with store.begin(Prompt.of_tokens([1, 2, 3, 4, 5])) as sequence:
            while True:
                yield sequence.token_count

    class Client:
        pass

    before = gc.get_threshold()
    gc.set_threshold(50, 2, 2)
    try:
        for _ in range(3000):
            client = Client()
            client.reply, client.me = stream(), client  # type: ignore[attr-defined]
            next(client.reply)  # type: ignore[attr-defined]
    finally:
        gc.set_threshold(*before)
    del client
    gc.collect()
    assert store.stats().running == 0
    store.audit()


def test_any_other_call_from_inside_is_refused() -> None:
    policy = Meddling()
    store = _store(policy)
    sequence = _begun(store, 1, 2, 3, 4)
    refused = []

    def meddle() -> None:
        prompt = Prompt.of_tokens([7])
        for call in (store.stats, store.audit, store.reset, sequence.park, lambda: store.begin(prompt)):
            with pytest.raises(InvalidRequest, match="from inside"):
                call()
            refused.append(call)

    policy.meddle = meddle
    sequence.commit(through=4)
    assert len(refused) == 5
    sequence.release()
    store.audit()


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ZeroDivisionError])
def test_a_change_that_is_torn_apart_breaks_the_store_for_good(error: type[BaseException]) -> None:
    policy = Meddling()
    store = _store(policy)
    bystander, sequence = _begun(store, 9, 9), _begun(store, 1, 2, 3, 4)

    def meddle() -> None:
        raise error

    policy.meddle = meddle
    with pytest.raises(error):
        sequence.commit(through=4)
    for call in (store.stats, store.audit, lambda: store.begin(Prompt.of_tokens([1, 2, 3, 4])), bystander.park):
        with pytest.raises(StoreBroken, match="make a new one"):
            call()
    with pytest.raises(StoreBroken):
        bystander.reserve(through=9)
    sequence.release()  # nothing to do, and no error that would hide the first
    bystander.abandon()


def test_our_own_errors_break_nothing() -> None:
    store = _store(Meddling(), pages=2)
    sequence = _begun(store, 1, 2, 3, 4)
    with pytest.raises(OutOfPages):
        sequence.reserve(through=40)
    with pytest.raises(InvalidRequest):
        sequence.commit(through=40)
    sequence.release()
    store.audit()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_sequence_has_one_owner(copied: Callable[[Sequence], Sequence]) -> None:
    store = _store(Meddling())
    sequence = _begun(store, 1, 2, 3, 4)
    with pytest.raises(TypeError, match="owns pages"):
        copied(sequence)
    gc.collect()
    sequence.release()
    store.audit()


def test_errors_can_be_handed_to_another_process() -> None:
    full, refused = copy.copy(OutOfPages(needed=3, free=1, evictable=1)), copy.copy(ResetRefused(running=2))
    assert (full.needed, full.free, full.evictable) == (3, 1, 1)
    assert refused.running == 2


class FickleSource:
    """Pages that somebody else takes between the count and the take."""

    def __init__(self, pages: int) -> None:
        self._inner = BlockAllocator(pages)
        self.promise: int | None = None

    @property
    def page_count(self) -> int:
        return self._inner.page_count

    @property
    def free_count(self) -> int:
        return self._inner.free_count if self.promise is None else self.promise

    def take(self, count: int) -> array[int]:
        return self._inner.take(count)

    def give(self, pages: array[int]) -> None:
        self._inner.give(pages)


def test_a_source_that_has_fewer_pages_than_it_said_costs_nothing_that_is_cached() -> None:
    source = FickleSource(8)
    store = KVStore(VirtualPagePool(page_count=8, block_tokens=_P), allocator=source)
    with _begun(store, *range(16)) as sequence:
        sequence.commit(through=16)
    hog = source.take(4)
    source.promise = 4
    late = store.begin(Prompt.of_tokens([99]))
    with pytest.raises(OutOfPages):
        late.reserve(through=8 * _P)
    source.promise = None
    assert store.stats().cached_pages == 4
    late.abandon()
    source.give(hog)
    store.audit()


def test_a_batch_can_reserve_for_a_prompt_as_long_as_the_pool() -> None:
    store = KVStore(VirtualPagePool(page_count=4, block_tokens=_P))
    with _begun(store, *range(16)) as sequence:
        sequence.commit(through=16)
    again = store.begin(Prompt.of_tokens(range(16)))
    batch = store.batch([again])
    batch.reserve(ahead=0)
    assert again.reserved_tokens == 16
    again.release()
    store.audit()


@pytest.mark.parametrize("ahead", [-1, True, 2.5, 1 << 63, None])
def test_ahead_is_a_sane_number(ahead: object) -> None:
    store = KVStore(VirtualPagePool(page_count=4, block_tokens=_P))
    batch = store.batch([_begun(store, 1)])
    with pytest.raises(InvalidRequest, match="ahead"):
        batch.reserve(ahead=ahead)  # type: ignore[arg-type]


def test_a_masked_token_is_refused_and_a_subclass_is_read_as_it_is() -> None:
    with pytest.raises(InvalidRequest, match="masked"):
        Prompt.of_tokens(np.ma.masked_array(np.arange(4, dtype=np.int32), mask=[0, 1, 0, 0]))

    class Sly(np.ndarray):
        def argmin(self, *args: object, **kwargs: object) -> int:  # type: ignore[override]
            return 0

    sly = np.array([1, -5], np.int32).view(Sly)
    with pytest.raises(InvalidRequest, match="-5"):
        Prompt.of_tokens(sly)


def test_a_run_cut_many_times_is_joined_in_one_pass() -> None:
    """Every pin inside a run splits it; one release of the whole joins the pieces, each copied once."""
    store = KVStore(VirtualPagePool(page_count=600, block_tokens=_P))
    tokens = np.arange(_P * 500, dtype=np.int32)
    with _begun(store, *tokens.tolist()) as sequence:
        sequence.commit(through=len(tokens))
    cuts = [store.begin(Prompt.of_tokens(tokens[: _P * blocks + 1])) for blocks in range(1, 500)]
    assert store.stats().nodes == 500
    whole = store.begin(Prompt.of_tokens(tokens))
    for cut in cuts:
        cut.abandon()
    whole.release()
    assert store.stats().nodes == 1
    store.audit()
