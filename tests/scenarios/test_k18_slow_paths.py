"""K18: a path costs more than it should. Steps are counted, not timed, so that a busy machine changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from types import FrameType
from typing import Any

import numpy as np
import pytest

from eviction import WHOLE_RUN, LruPolicy, RequestFacts, make_policy, policy_names
from kvstore import KVStore, Prompt
from tests.support.watched import WatchedPolicy
from transfer import VirtualPagePool

_OURS = ("kvstore", "eviction")


def _lines(act: Callable[[], object]) -> int:
    """Lines of our packages that run in ``act``."""
    count = 0

    def line(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return line

    def call(frame: FrameType, event: str, arg: Any) -> Any:
        return line if str(frame.f_globals.get("__name__")).startswith(_OURS) else None

    was = sys.gettrace()
    sys.settrace(call)
    try:
        act()
    finally:
        sys.settrace(was)
    return count


class _NaiveLru:
    """Sorts everything at each eviction. Obviously right, and what B135 is about."""

    name = "naive"

    def __init__(self) -> None:
        self._clock = 0
        self._used: dict[Hashable, tuple[int, int]] = {}
        self._offered: set[Hashable] = set()

    def insert(self, key: Hashable, *, first_block: int, block_count: int, ghost_id: int) -> None:
        self._clock += 1
        self._used[key] = (self._clock, -first_block)

    def grow(self, key: Hashable, block_count: int) -> None:
        pass

    def shrink(self, key: Hashable, block_count: int) -> None:
        pass

    def remove(self, key: Hashable) -> None:
        del self._used[key]
        self._offered.discard(key)

    def split(self, key: Hashable, upper: Hashable, upper_block_count: int, *, ghost_id: int) -> None:
        used, first = self._used[key]
        self._used[upper], self._used[key] = (used, first), (used, first - upper_block_count)

    def can_merge(self, upper: Hashable, key: Hashable) -> bool:
        return False

    def merge(self, upper: Hashable, key: Hashable) -> None:
        raise AssertionError("never asked for")

    def offer(self, key: Hashable) -> None:
        self._offered.add(key)

    def withdraw(self, key: Hashable) -> None:
        self._offered.remove(key)

    def used(self, request: RequestFacts, path: Sequence[Hashable]) -> None:
        self._clock += 1
        for key in path:
            self._used[key] = (self._clock, self._used[key][1])

    def victims(self) -> Iterator[tuple[Hashable, int]]:
        return iter([(key, WHOLE_RUN) for key in sorted(self._offered, key=lambda key: self._used[key])])

    def check_invariants(self) -> None:
        assert self._offered <= self._used.keys()


def _serve(store: KVStore, tokens: Sequence[int]) -> None:
    with store.begin(Prompt.of_tokens(tokens)) as sequence:
        sequence.reserve(through=len(tokens))
        sequence.commit(through=len(tokens))


def _full_store(page_count: int, policy: WatchedPolicy[Hashable]) -> KVStore:
    """A store whose every page is a cached leaf of its own."""
    store = KVStore(VirtualPagePool(page_count=page_count, block_tokens=1), policy=policy)
    for leaf in range(page_count):
        _serve(store, [leaf])
    assert store.stats().cached_pages == page_count
    return store


@pytest.mark.parametrize("name", policy_names())
def test_b135_an_eviction_costs_the_same_however_much_is_cached(name: str) -> None:
    """B135: 1 k and 16 k cached leaves, evict and insert one page 200 times: as many steps and as many lines."""
    costs = []
    for page_count in (1_000, 16_000):
        watched: WatchedPolicy[Hashable] = WatchedPolicy(make_policy(name))
        store = _full_store(page_count, watched)
        watched.calls.clear()

        def churn(store: KVStore = store, start: int = page_count) -> None:
            for leaf in range(start, start + 200):
                _serve(store, [leaf])

        lines = _lines(churn)
        assert store.stats().evicted_blocks["capacity"] == 200
        assert watched.calls["steps"] == watched.calls["victims"] == 200
        costs.append((lines, sum(watched.calls.values())))
    small, large = costs
    assert large[1] == small[1]
    assert large[0] <= small[0] * 1.2


def test_b135_pinned_and_inner_runs_do_not_make_an_eviction_dearer() -> None:
    """B135: one eviction passes no more runs when 2 000 older ones are pinned or have children."""
    costs = []
    for held in (20, 2_000):
        store = KVStore(VirtualPagePool(page_count=2 * held + 200, block_tokens=1))
        sequences = []
        for leaf in range(held):
            _serve(store, [leaf, 0])
            sequences.append(store.begin(Prompt.of_tokens([leaf, 0, 1])))
        for leaf in range(200):
            _serve(store, [10_000 + leaf])
        for leaf in range(200, 250):  # walks meet the held ones once
            _serve(store, [10_000 + leaf])

        def churn(store: KVStore = store) -> None:
            for leaf in range(250, 450):
                _serve(store, [10_000 + leaf])

        costs.append(_lines(churn))
        assert store.stats().evicted_blocks["capacity"] == 250
        store.audit()
        for sequence in sequences:
            sequence.abandon()
    assert costs[1] <= costs[0] * 1.2


@pytest.mark.parametrize("seed", range(3))
def test_b135_the_victims_are_those_of_a_naive_policy(seed: int) -> None:
    """B135: the same requests on a policy that sorts all leaves at each eviction leave the same blocks."""
    choose = np.random.default_rng(seed)
    stores = [
        KVStore(VirtualPagePool(page_count=40, block_tokens=2), policy=policy) for policy in (LruPolicy(), _NaiveLru())
    ]
    prompts: list[list[int]] = []
    for turn in range(300):
        head = prompts[int(choose.integers(len(prompts)))] if prompts and choose.random() < 0.7 else []
        rest = choose.integers(4, size=choose.integers(1, 9)).tolist()
        prompts.append([*head[: int(choose.integers(len(head) + 1))], *rest][:40])
        for store in stores:
            _serve(store, prompts[-1])
        if turn % 10 == 9:
            ours, naive = ([store.peek(Prompt.of_tokens(each)) for each in prompts] for store in stores)
            assert ours == naive
    for store in stores:
        store.audit()
    assert stores[0].stats().evicted_blocks == stores[1].stats().evicted_blocks
    assert stores[0].stats().evicted_blocks["capacity"] > 100


def test_b137_a_match_costs_its_runs_not_its_tokens() -> None:
    """B137: 8 k, 128 k, 1 M tokens in one run: begin, reserve, commit and release of the next turn cost the same."""
    costs = []
    for tokens in (1 << 13, 1 << 17, 1 << 20):
        store = KVStore(VirtualPagePool(page_count=(tokens >> 4) + 32, block_tokens=16))
        history = np.arange(tokens, dtype=np.int32)
        _serve(store, history)
        assert store.stats().nodes == 1
        prompt = Prompt.of_tokens(np.concatenate([history, np.arange(100, dtype=np.int32)]))

        def turn(store: KVStore = store, prompt: Prompt = prompt) -> None:
            with store.begin(prompt) as sequence:
                assert sequence.cached_tokens == prompt.token_count - 100
                sequence.reserve(through=prompt.token_count)
                sequence.commit(through=prompt.token_count)

        costs.append(_lines(turn))
        assert store.stats().nodes == 1  # the turn has grown the run that it continued
        assert store.peek(prompt) == prompt.token_count // 16 * 16
    assert len(set(costs)) == 1


def test_b137_names_are_computed_for_new_blocks_only() -> None:
    """B137: a chain that is known is not hashed again: the second turn costs its own blocks, whatever came before."""
    costs = []
    for tokens in (1 << 10, 1 << 14):
        store = KVStore(VirtualPagePool(page_count=(tokens >> 4) + 32, block_tokens=16))
        history = np.arange(tokens, dtype=np.int32)
        _serve(store, history)
        first = store.block_names(Prompt.of_tokens(history))
        turn = np.concatenate([history, np.arange(96, dtype=np.int32)])
        prompt = Prompt.of_tokens(turn)
        _serve(store, turn)
        costs.append(_lines(lambda store=store, prompt=prompt: store.block_names(prompt)))
        names = store.block_names(prompt)
        assert names[: len(first)] == first
        assert len(names) == len(first) + 6
    # Cutting the answer into a list is one line a name; hashing a block would be four more.
    assert costs[1] - costs[0] <= (1 << 14) - (1 << 10) >> 4
