"""K16: races, cancellation and duplicate work."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable

import pytest

from kvstore import InvalidRequest, KVStore, Prompt
from tests.support.engine import Engine, Request
from transfer import VirtualPagePool

A = list(range(1, 9))


def _chunk(request: Request) -> None:
    request.reserve()
    request.write()
    request.commit()


@pytest.mark.parametrize("order", sorted(itertools.permutations(["park", "resume", "chunk", "end"])))
@pytest.mark.parametrize("others", [False, True])
def test_b129_every_order_of_preempt_readmit_compute_and_finish_is_legal_or_refused(
    order: tuple[str, ...], others: bool
) -> None:
    """B129: one tier has no transfer that could outlive X; all 24 orders of X's life, with room and without."""
    engine = Engine(page_count=6)
    x = engine.begin(A)
    x.reserve(through=4)
    x.write(through=4)
    x.commit()
    acts: dict[str, Callable[[], object]] = {
        "park": x.park,
        "resume": x.resume,
        "chunk": lambda: _chunk(x),
        "end": x.release,
    }
    state = "running"
    for act in order:
        allowed = {
            "park": state in ("running", "parked"),
            "resume": state == "parked",
            "chunk": state == "running",
            "end": True,
        }[act]
        if others:
            engine.grab_all().abandon()
        if allowed:
            acts[act]()
            state = {"park": "parked", "resume": "running", "chunk": state, "end": "ended"}[act]
        else:
            before = engine.store.stats()
            with pytest.raises(InvalidRequest, match=state):
                acts[act]()
            assert engine.store.stats() == before
        engine.check()
    engine.check_quiet()


def test_b129_a_preempted_request_comes_back_among_others() -> None:
    """B129: X is preempted while Y shares its pages, comes back after Y has grown them, and reads its own KV."""
    engine = Engine(page_count=8)
    x = engine.begin(A)
    x.prefill()
    y = engine.begin([*A, 9])
    x.append([9, 10])
    x.park()
    y.prefill()
    y.decode([10, 11, 12, 13])
    y.prefill()
    assert x.resume() == 8
    x.decode([11, 12, 13, 14])
    x.prefill()
    assert x.pages[:3] == y.pages[:3]
    engine.check()
    y.release()
    x.release()
    engine.check_quiet()


def test_b130_many_requests_for_one_prompt_end_up_on_one_copy() -> None:
    """B130: one tier: 32 requests compute A at once (nothing is loaded); one copy stays, all read it, none leaks."""
    engine = Engine(page_count=64)
    requests = [engine.begin(A) for _ in range(32)]
    for request in requests:
        request.reserve()
        request.write()
    assert engine.store.stats().free_pages == 0
    requests.pop(0).abandon()  # the first is cancelled: another's pages become the shared ones
    remapped = [request.commit().remapped for request in requests]
    assert remapped == [range(0)] + [range(2)] * 30
    assert {tuple(request.pages) for request in requests} == {tuple(requests[0].pages)}
    stats = engine.store.stats()
    assert (stats.cached_pages, stats.free_pages, stats.duplicate_blocks) == (2, 62, 60)
    engine.check()
    for request in requests:
        request.release()
    engine.check_quiet()


def test_b130_many_threads_for_one_prompt_end_up_on_one_copy() -> None:
    """B130: the same from 32 threads that begin, reserve and commit at once; every table ends on the same pages."""
    store = KVStore(VirtualPagePool(page_count=32 * 3, block_tokens=4))
    prompt = Prompt.of_tokens([*A, 9])
    barrier = threading.Barrier(32)
    tables: list[list[int]] = []

    def run() -> None:
        barrier.wait()
        with store.begin(prompt) as sequence:
            sequence.reserve(through=9)
            sequence.commit(through=9)
            tables.append(sequence.page_table.tolist()[:2])
            barrier.wait()

    was = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=run) for _ in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(was)
    assert len(tables) == 32
    assert len(set(map(tuple, tables))) == 1
    stats = store.stats()
    assert (stats.cached_pages, stats.free_pages, stats.running) == (2, 94, 0)
    assert stats.hit_tokens // 8 + stats.duplicate_blocks // 2 + 1 == 32
    store.audit()
