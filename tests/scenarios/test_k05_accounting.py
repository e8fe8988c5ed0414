"""K05: counts of free, evictable and used pages drift away from the truth."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from eviction import make_policy, policy_names
from kvstore import OutOfPages
from tests.support.engine import Engine, Request, Walk

Prefix = tuple[int, ...]


def _blocks(tokens: Iterable[int], *, end: int, block_tokens: int) -> set[Prefix]:
    """The blocks of ``tokens[:end]``, each named by its whole prefix."""
    known = tuple(tokens)
    return {known[:at] for at in range(block_tokens, end + 1, block_tokens)}


def _resident(engine: Engine, prompts: Iterable[Iterable[int]]) -> set[Prefix]:
    found: set[Prefix] = set()
    for prompt in prompts:
        known = list(prompt)
        found |= _blocks(known, end=engine.cached(known), block_tokens=engine.block_tokens)
    return found


def _held(requests: Iterable[Request]) -> set[Prefix]:
    held: set[Prefix] = set()
    for request in requests:
        held |= _blocks(request.tokens, end=request.held_tokens, block_tokens=request.engine.block_tokens)
    return held


def _stems(seed: int) -> list[list[int]]:
    """50 prompts in a tree with shared stems: each continues a part of an earlier one."""
    choose = random.Random(seed)
    prompts = [[0, 0, 0, 0]]
    while len(prompts) < 50:
        stem = choose.choice(prompts)
        rest = [choose.randrange(3) for _ in range(choose.randint(1, 12))]
        prompts.append(stem[: choose.randint(0, len(stem))] + rest)
    return prompts


def _replay(engine: Engine, prompts: list[list[int]], *, hold_every: int) -> list[Request]:
    held = []
    for at, prompt in enumerate(prompts):
        request = engine.begin(prompt)
        request.prefill()
        if at % hold_every:
            request.release()
        else:
            held.append(request)
    return held


@pytest.mark.parametrize("policy", policy_names())
def test_b042_evictable_is_what_evicting_everything_yields(policy: str) -> None:
    """B042: 50 prompts with shared stems and splits inside; at every step a copy evicts everything it can."""
    prompts = _stems(seed=42)
    for steps in range(1, len(prompts) + 1):
        engine = Engine(page_count=300, policy=make_policy(policy))
        held = _replay(engine, prompts[:steps], hold_every=5)
        stats = engine.store.stats()
        resident = _resident(engine, prompts[:steps])
        assert len(resident) == stats.cached_pages
        assert len(resident - _held(held)) == stats.evictable_pages
        with pytest.raises(OutOfPages):
            engine.grab(stats.free_pages + stats.evictable_pages + 1)
        greedy = engine.grab(stats.free_pages + stats.evictable_pages)
        assert engine.store.stats().evicted_blocks["capacity"] == stats.evictable_pages
        assert _resident(engine, prompts[:steps]) == resident & _held(held)
        engine.check()
        greedy.abandon()


@pytest.mark.parametrize("block_tokens", [1, 2, 4])
@pytest.mark.parametrize("policy", policy_names())
def test_b043_evictable_and_protected_make_up_the_tree(block_tokens: int, policy: str) -> None:
    """B043: insert, match, split, pin, unpin, evict over a 3-letter alphabet against sets of prefixes."""
    engine = Engine(page_count=48 // block_tokens, block_tokens=block_tokens, policy=make_policy(policy))
    walk = Walk(engine, seed=block_tokens)
    for _ in range(250):
        walk.step()
        stats = engine.store.stats()
        resident = _resident(engine, [*walk.prompts, *(request.tokens for request in walk.requests)])
        held = _held(walk.requests)
        assert held <= resident
        # Blocks that only an ended request had sampled are forgotten here, so the tree may have some more.
        assert len(resident) <= stats.cached_pages
        assert stats.cached_pages - stats.evictable_pages == len(held)
        assert stats.free_pages + stats.cached_pages + stats.reserved_pages == stats.page_count
    walk.quiet()
    engine.check_quiet()


def test_b043_a_split_changes_no_count() -> None:
    """B043: a match that ends inside a run cuts it, held or not; all counts stay but the number of runs."""
    for held in (False, True):
        engine = Engine(page_count=8)
        engine.serve(range(16))
        holder = engine.begin([*range(16), 99])
        if not held:
            holder.release()
        before = engine.store.stats()
        splitter = engine.begin([*range(8), 50])
        during = engine.store.stats()
        assert during.nodes == before.nodes + 1
        assert during.cached_pages == before.cached_pages
        assert during.evictable_pages == (0 if held else 2)
        engine.check()
        splitter.abandon()
        after = engine.store.stats()
        assert (after.cached_pages, after.evictable_pages) == (before.cached_pages, before.evictable_pages)
        engine.check()
        holder.release()
        engine.check_quiet()
