"""What is done and timed? One function a case; each works on a manager of its process and returns named figures."""

from __future__ import annotations

import collections
import dataclasses
import gc
import resource
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import cells
import numpy as np
from clocks import Spread, Timing, settle, time_each, time_repeated
from manager import Admitted, Manager, ManagerSpec, Tokens
from numpy.typing import NDArray
from workload import PAGE_TOKENS, expand, fill, novel_prompts, read_trace, refill, token_source

__all__ = ["Bench", "Figures"]

#: One measured cell: plain numbers, ready for JSON.
Figures = dict[str, object]

_REQUEST_POOL_PAGES = 1 << 19  #: nothing is evicted in the cases that time requests
_BACKGROUND_PAGES = 50_000
_REPEATED_SAMPLES = {1 << 10: 101, 1 << 13: 41, 1 << 15: 15, 1 << 17: 9}
_SINGLE_SAMPLES = {1 << 10: 60, 1 << 13: 40, 1 << 15: 15, 1 << 17: 5}
#: Together they turn a pool of 100,000 over once (a sample evicts twice): more samples would meet other pages.
_EVICT_SAMPLES = {1_000: 9, 10_000: 4}
_TRACE_POOL_SHARE = 0.2
_TRACE_IN_FLIGHT = 32
_PAGE_BYTES = resource.getpagesize()


class Bench:
    """One manager in one process, and the cases that can be run on it."""

    def __init__(self, spec: ManagerSpec, seed: int) -> None:
        self._spec = spec
        self._make = spec.load()
        self._seed = seed
        self._make(64, PAGE_TOKENS)  # costs of the first use come before any measurement
        self._manager: Manager | None = None

    def requests(self) -> Iterator[tuple[str, Figures]]:
        """Build the pool that ``cached``, ``half``, ``miss`` and ``new`` share, with other prompts already in it."""
        self._manager = self._make(_REQUEST_POOL_PAGES, PAGE_TOKENS)
        fill(self._manager, self._spec, token_source(self._seed, "background"), _BACKGROUND_PAGES)
        yield from ()

    def cached(self, *, token_count: int, turns: int) -> Iterator[tuple[str, Figures]]:
        """Begin and end a request whose prompt is cached."""
        manager = self._built()
        (prompt,) = novel_prompts(token_source(self._seed, f"cached {token_count} {turns}"), 1, token_count)
        step = token_count // turns
        for end in range(step, token_count + 1, step):
            manager.release(manager.admit(self._cheapest(prompt[:end])))
        settle()
        for form in (cells.BUFFER, cells.LIST, cells.NATIVE):
            tokens = self._form(prompt, form)
            hit = manager.visit(tokens)
            timing = time_repeated(partial(manager.visit, tokens), _REPEATED_SAMPLES[token_count])
            yield cells.cached(token_count, form, turns=turns), _figures(timing, cached_tokens=hit)

    def half(self, *, token_count: int) -> Iterator[tuple[str, Figures]]:
        """Match prompts that part from a cached one in the middle, each another."""
        manager, count = self._built(), _SINGLE_SAMPLES[token_count]
        for form in (cells.BUFFER, cells.LIST):
            source = token_source(self._seed, f"half {token_count} {form}")
            prompts = novel_prompts(source, count, token_count)
            for prompt in prompts:
                manager.release(manager.admit(self._cheapest(prompt)))
                prompt[token_count // 2 :] = novel_prompts(source, 1, token_count - token_count // 2)[0]
            given = [self._form(prompt, form) for prompt in prompts]
            settle()
            timing = time_each(partial(manager.match, tokens) for tokens in given)
            yield cells.half(token_count, form), _figures(timing, cached_tokens=manager.match(given[0]))

    def miss(self, *, token_count: int) -> Iterator[tuple[str, Figures]]:
        """Match a prompt of which nothing is cached."""
        manager = self._built()
        (prompt,) = novel_prompts(token_source(self._seed, f"miss {token_count}"), 1, token_count)
        settle()
        for form in (cells.BUFFER, cells.LIST):
            tokens = self._form(prompt, form)
            hit = manager.match(tokens)
            timing = time_repeated(partial(manager.match, tokens), _REPEATED_SAMPLES[token_count])
            yield cells.miss(token_count, form), _figures(timing, cached_tokens=hit)

    def new(self, *, token_count: int) -> Iterator[tuple[str, Figures]]:
        """Admit and release prompts that were never seen, each once."""
        manager, count = self._built(), _SINGLE_SAMPLES[token_count]
        for form in (cells.BUFFER, cells.LIST):
            prompts = novel_prompts(token_source(self._seed, f"new {token_count} {form}"), count, token_count)
            given = [self._form(prompt, form) for prompt in prompts]
            settle()
            timing = time_each(partial(_serve, manager, tokens) for tokens in given)
            yield cells.new(token_count, form), _figures(timing)

    def full_pool(self, *, pool: int) -> Iterator[tuple[str, Figures]]:
        """Build a pool and cache prompts until every page is used; what the process grew by is the memory figure."""
        before = _resident_bytes()
        manager = self._make(pool, PAGE_TOKENS)
        empty = _resident_bytes()
        fill(manager, self._spec, token_source(self._seed, "full pool"), pool)
        full = _resident_bytes()
        self._manager = manager
        settle()
        yield (
            cells.memory(pool),
            {
                "bytes_per_page": round((full - before) / pool, 1),
                "empty_bytes_per_page": round((empty - before) / pool, 1),
            },
        )

    def evict(self, *, evicted: int, pool: int) -> Iterator[tuple[str, Figures]]:
        """Take pages of the full pool, give them back and fill it again, so that each sample meets a full one."""
        manager = self._built()
        source = token_source(self._seed, f"evict {evicted}")

        def takes() -> Iterator[Callable[[], object]]:
            for _ in range(_EVICT_SAMPLES[evicted]):
                demand = manager.demand(evicted)
                yield demand.take
                demand.give_back()
                refill(manager, self._spec, source, evicted)

        yield cells.evict(evicted, pool), _figures(time_each(takes()))

    def trace(self, *, path: str, form: str) -> Iterator[tuple[str, Figures]]:
        """Replay a trace through a pool of a fifth of its unique blocks; making the tokens is not timed."""
        recorded = read_trace(Path(path))
        pool = int(recorded.unique_tokens // PAGE_TOKENS * _TRACE_POOL_SHARE)
        before = _resident_bytes()
        manager = self._make(pool, PAGE_TOKENS)
        settle()
        running: collections.deque[Admitted] = collections.deque()
        wall_ns, cpu_ns, hits, total, peak = [], [], 0, 0, 0
        for number, row in enumerate(recorded.rows):
            tokens = self._form(expand(row), form)
            cpu_start, wall_start = time.process_time_ns(), time.perf_counter_ns()
            if len(running) == _TRACE_IN_FLIGHT:
                manager.release(running.popleft())
            admitted = manager.admit(tokens)
            wall_end, cpu_end = time.perf_counter_ns(), time.process_time_ns()
            wall_ns.append(wall_end - wall_start)
            cpu_ns.append(cpu_end - cpu_start)
            running.append(admitted)
            hits += admitted.cached_tokens
            total += row.token_count
            if number % 200 == 0:
                peak = max(peak, _resident_now())
        timing = Timing(samples=len(wall_ns), wall_us=Spread.of(wall_ns), cpu_us=Spread.of(cpu_ns))
        yield (
            cells.trace(form),
            _figures(
                timing,
                pool_pages=pool,
                requests=len(wall_ns),
                tokens=total,
                token_hit_ratio=round(hits / total, 4),
                requests_per_cpu_s=round(len(cpu_ns) / sum(cpu_ns) * 1e9, 1),
                requests_per_wall_s=round(len(wall_ns) / sum(wall_ns) * 1e9, 1),
                resident_mb=round((peak - before) / 1e6, 1),
            ),
        )

    def _built(self) -> Manager:
        assert self._manager is not None, "the case needs requests() or full_pool() first"
        return self._manager

    def _form(self, tokens: NDArray[np.int32], form: str) -> Tokens:
        if form == cells.NATIVE:
            return self._built().engine_buffer(tokens)
        return tokens.tolist() if form == cells.LIST else tokens

    def _cheapest(self, tokens: NDArray[np.int32]) -> Tokens:
        return tokens if self._spec.buffers else tokens.tolist()


def _serve(manager: Manager, tokens: Tokens) -> None:
    manager.release(manager.admit(tokens))


def _figures(timing: Timing, **more: float) -> Figures:
    return {**dataclasses.asdict(timing), **more}


def _resident_bytes() -> int:
    gc.collect()
    return _resident_now()


def _resident_now() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * _PAGE_BYTES
