"""What a request costs, counted and not timed: calls, runs and steps must not grow with tokens or blocks."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType

import numpy as np
import pytest

from eviction import LruPolicy
from kvstore import KVStore, Prompt
from tests.support.watched import WatchedPolicy
from transfer import VirtualPagePool

_BLOCK_TOKENS = 16
_SHORT, _LONG = 8, 4096  #: blocks


def _store(page_count: int, **more: int) -> tuple[KVStore, Counter[str]]:
    policy = WatchedPolicy(LruPolicy())
    pool = VirtualPagePool(page_count=page_count, block_tokens=_BLOCK_TOKENS)
    return KVStore(pool, policy=policy, **more), policy.calls


def _prompt(blocks: int, *, last: int = 0) -> Prompt:
    """Whole blocks, the same in every prompt up to the last one, which ``last`` tells apart."""
    tokens = np.arange(blocks * _BLOCK_TOKENS, dtype=np.int32)
    tokens[(blocks - 1) * _BLOCK_TOKENS :] += last << 20
    return Prompt.of_tokens(tokens)


def _serve(store: KVStore, prompt: Prompt) -> None:
    with store.begin(prompt) as sequence:
        sequence.reserve(through=sequence.token_count)
        sequence.commit(through=sequence.token_count)


def _calls(work: Callable[[], object]) -> int:
    """How many functions, of Python or of C, one piece of work calls."""
    count = 0

    def count_call(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.collect()  # a collection in the middle would count its callbacks
    gc.disable()
    before = sys.getprofile()
    sys.setprofile(count_call)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


@pytest.mark.parametrize("operation", ["begin", "peek", "reserve", "commit", "release"])
def test_an_operation_calls_as_many_functions_for_a_long_prompt_as_for_a_short_one(operation: str) -> None:
    counts = {}
    for blocks in (_SHORT, _LONG):
        store, _ = _store(4 * _LONG)
        _serve(store, _prompt(blocks))
        prompt = _prompt(2 * blocks)
        sequence = store.begin(prompt)
        works = {
            "begin": lambda store=store, prompt=prompt: store.begin(prompt),
            "peek": lambda store=store, prompt=prompt: store.peek(prompt),
            "reserve": lambda sequence=sequence: sequence.reserve(through=sequence.token_count),
            "commit": lambda sequence=sequence: sequence.commit(through=sequence.token_count),
            "release": sequence.release,
        }
        for name, work in works.items():
            calls = _calls(work)
            if name == operation:
                counts[blocks] = calls
    assert counts[_SHORT] == counts[_LONG]


@pytest.mark.parametrize("blocks", [_SHORT, _LONG])
def test_a_match_inside_a_run_asks_the_policy_for_one_split(blocks: int) -> None:
    store, calls = _store(_LONG)
    _serve(store, _prompt(blocks))
    calls.clear()
    sequence = store.begin(_prompt(blocks // 2))
    assert sequence.matched_tokens == blocks // 2 * _BLOCK_TOKENS
    assert calls == {"split": 1}
    assert store.stats().nodes == 2
    sequence.release()
    assert calls == {"split": 1, "used": 1}


@pytest.mark.parametrize("blocks", [_SHORT, _LONG])
def test_a_whole_match_asks_the_policy_once_to_protect_and_once_to_offer(blocks: int) -> None:
    store, calls = _store(2 * _LONG)
    _serve(store, _prompt(blocks))
    calls.clear()
    _serve(store, _prompt(blocks))
    assert calls == {"withdraw": 1, "offer": 1, "used": 1}


@pytest.mark.parametrize("blocks", [_SHORT, _LONG])
def test_what_is_split_for_a_request_is_joined_at_its_release(blocks: int) -> None:
    store, _ = _store(2 * _LONG)
    _serve(store, _prompt(blocks))
    for cut in range(1, _SHORT):
        _serve(store, _prompt(cut))
        assert store.stats().nodes == 2  # the leading part is hotter than the rest
    _serve(store, _prompt(blocks))
    assert store.stats().nodes == 1


def test_a_chat_of_256_turns_stays_one_run() -> None:
    store, calls = _store(4 * 256)
    worst = Counter[str]()
    for turn in range(1, 257):
        calls.clear()
        _serve(store, _prompt(4 * turn - 1))
        worst |= calls
        assert store.stats().nodes == 1
    assert store.peek(_prompt(4 * 256 - 1)) == (4 * 256 - 1) * _BLOCK_TOKENS
    assert worst.total() <= 12, f"one turn made {worst}"


def test_an_answer_of_256_steps_stays_one_run_beside_the_prompt_it_shares() -> None:
    store, calls = _store(1024)
    _serve(store, _prompt(16))
    other = store.begin(_prompt(16))
    sequence = store.begin(_prompt(16))
    for end in range(17 * _BLOCK_TOKENS, 273 * _BLOCK_TOKENS, _BLOCK_TOKENS):
        sequence.append(np.full(_BLOCK_TOKENS, 7, np.int32))
        sequence.reserve(through=end)
        calls.clear()
        sequence.commit(through=end)
        assert calls.total() == 1
        assert store.stats().nodes == 2
    sequence.release()
    other.release()
    store.audit()


@pytest.mark.parametrize("blocks", [4, 400])
def test_eviction_asks_once_for_each_run_that_goes(blocks: int) -> None:
    runs = 20
    store, calls = _store(runs * blocks)
    for run in range(runs):
        _serve(store, Prompt.of_tokens(np.full(blocks * _BLOCK_TOKENS, run, np.int32)))
    assert store.stats().nodes == runs
    sequence = store.begin(_prompt(1))
    calls.clear()
    sequence.reserve(through=(5 * blocks + blocks // 2) * _BLOCK_TOKENS)
    assert (calls["remove"], calls["shrink"], calls["victims"]) == (5, 1, 6)
    assert calls.total() <= 4 * 6, f"more calls than runs would need: {calls}"
    assert store.stats().evicted_blocks["capacity"] == 5 * blocks + blocks // 2


def test_a_path_of_many_runs_costs_a_step_for_each() -> None:
    counts = []
    for depth in (10, 20, 30):
        store, calls = _store(_LONG)
        for cut in range(1, depth + 1):  # from the deepest up, so that each prompt leaves its own run behind
            _serve(store, _prompt(depth + 1 - cut, last=0 if cut == 1 else cut))
        _serve(store, _prompt(depth))
        calls.clear()
        counts.append(_calls(lambda store=store, depth=depth: store.peek(_prompt(depth))))
    assert counts[2] - counts[1] <= counts[1] - counts[0] + 2, "more than a step for each run"
