"""How long does a request wait until its cached prefix is found, pinned and given back?

A call is what an engine does: snapshot the prompt, ``begin``, read the page table, ``release``. Shapes of the tree:

* *one run*: the prompt was served once; *N turns*: it grew in N requests, each the one before and more;
* *N forks*: at N places another prompt left it, so that the path has N runs which cannot become one;
* *half*: the second half is new, and its place in the run was never cut before (each sample cuts another run);
* *miss*: nothing of it is cached.

Estimate. Per call some 120 lines of Python at 50 ns: 6 us; one pass over the bytes costs 11 us for 128 k tokens where
it copies or compares, 7 us where it looks for a top bit, and the page ids are a 16th of a copy, twice. So from numpy
6 us + (11 + 11 + 7 + 2) us / 128 k = 6 us + 0.24 ns a token; a list costs 8 ns a token to pack, and as much as numpy
after that. Turns merge at release: they cost what one run costs. A fork is a dict look-up, a memcmp, a step of the path
and of the policy: 1 us a run. A half compares half, but copies both halves of the run: 10 us + 0.3 ns a token; a miss
only takes the snapshot: 5 us + 0.14 ns a token.

Yardstick: the snapshot (memcpy; from a list ``struct.pack`` in pieces) and the memcmp of what matches.
"""

from __future__ import annotations

import statistics
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.micro.cell import Benchmark, Cell, Setup, timed_cell
from benchmarks.micro.timing import floor_us, time_each, time_in_turns
from benchmarks.micro.workload import BLOCK_TOKENS, TOKEN_COUNTS, draw, fill, new_store, serve, size_name, token_source
from benchmarks.peers.clocks import settle
from kvstore import KVStore, Prompt

__all__ = ["BENCHMARK"]

_Form: TypeAlias = Callable[[NDArray[np.int32]], "NDArray[np.int32] | list[int]"]

_POOL_PAGES = 1 << 22  #: nothing is evicted here
_BACKGROUND_PAGES = 20_000
_TURN_COUNTS = (1, 32, 256)
_FORK_COUNTS = (32, 256)
_HALF_SAMPLES = {1 << 10: 200, 1 << 13: 100, 1 << 15: 40, 1 << 17: 15, 1 << 20: 5}
_FORMS: dict[str, _Form] = {"numpy": lambda tokens: tokens, "list": lambda tokens: tokens.tolist()}
_NS_A_TOKEN = {"numpy": 0.0, "list": 8.0}
_PACK_TOKENS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A look-up that may be repeated, since it leaves the tree as it was."""

    name: str
    tokens: NDArray[np.int32] | list[int]
    hit_tokens: int
    estimate_us: float


def _measure(setup: Setup) -> Iterator[Cell]:
    store = new_store(_POOL_PAGES)
    fill(store, token_source(setup.seed, "background"), _BACKGROUND_PAGES)
    for cases in (_cached, _forked, _missed):
        yield from _repeated(store, [case for count in TOKEN_COUNTS for case in cases(store, setup, count)])
    for token_count in TOKEN_COUNTS:
        yield from _half(store, setup, token_count)


def _cached(store: KVStore, setup: Setup, token_count: int) -> Iterator[_Case]:
    for turns in _TURN_COUNTS:
        step = token_count // turns
        if step < BLOCK_TOKENS:
            continue
        tokens = draw(token_source(setup.seed, f"cached {token_count} {turns}"), token_count)
        for end in range(step, token_count + 1, step):
            serve(store, tokens[:end])
        for form, convert in _FORMS.items():
            yield _Case(
                name=f"{'one run' if turns == 1 else f'{turns} turns'}, {form}, {size_name(token_count)}",
                tokens=convert(tokens),
                hit_tokens=token_count,
                estimate_us=6 + token_count * (_NS_A_TOKEN[form] + 0.24) / 1e3,
            )


def _forked(store: KVStore, setup: Setup, token_count: int) -> Iterator[_Case]:
    for forks in _FORK_COUNTS:
        step = token_count // forks
        if step < BLOCK_TOKENS:
            continue
        source = token_source(setup.seed, f"forks {token_count} {forks}")
        tokens = draw(source, token_count)
        serve(store, tokens)
        for end in range(step, token_count, step):
            serve(store, np.concatenate([tokens[:end], draw(source, BLOCK_TOKENS)]))
        yield _Case(
            name=f"{forks} forks, numpy, {size_name(token_count)}",
            tokens=tokens,
            hit_tokens=token_count,
            estimate_us=6 + forks + token_count * 0.24 / 1e3,
        )


def _missed(store: KVStore, setup: Setup, token_count: int) -> Iterator[_Case]:
    del store  # nothing is cached for it
    tokens = draw(token_source(setup.seed, f"miss {token_count}"), token_count)
    for form, convert in _FORMS.items():
        yield _Case(
            name=f"miss, {form}, {size_name(token_count)}",
            tokens=convert(tokens),
            hit_tokens=0,
            estimate_us=5 + token_count * (_NS_A_TOKEN[form] + 0.14) / 1e3,
        )


def _repeated(store: KVStore, cases: Sequence[_Case]) -> Iterator[Cell]:
    for case in cases:
        found = _look_up(store, case.tokens)
        assert found == case.hit_tokens, f"{case.name}: matched {found} tokens"
    settle()
    floors = [_floors_us(cases)]
    timings = time_in_turns([partial(_look_up, store, case.tokens) for case in cases])
    floors += [_floors_us(cases), _floors_us(cases)]
    for case, timing, found_us in zip(cases, timings, zip(*floors, strict=True), strict=True):
        yield timed_cell(case.name, timing, estimate=case.estimate_us, yardstick=statistics.median(found_us))


def _half(store: KVStore, setup: Setup, token_count: int) -> Iterator[Cell]:
    for form, convert in _FORMS.items():
        source = token_source(setup.seed, f"half {token_count} {form}")

        def calls(source: np.random.Generator = source, convert: _Form = convert) -> Iterator[Callable[[], object]]:
            for _ in range(_HALF_SAMPLES[token_count]):
                tokens = draw(source, token_count)
                serve(store, tokens)
                tokens[token_count // 2 :] = draw(source, token_count - token_count // 2)
                yield partial(_look_up, store, convert(tokens))

        yield timed_cell(
            f"half, {form}, {size_name(token_count)}",
            time_each(calls()),
            estimate=10 + token_count * (_NS_A_TOKEN[form] + 0.3) / 1e3,
            yardstick=_floor_us(convert(draw(source, token_count)), token_count // 2),
        )


def _look_up(store: KVStore, tokens: NDArray[np.int32] | list[int]) -> int:
    sequence = store.begin(Prompt.of_tokens(tokens))
    _ = sequence.page_table
    sequence.release()
    return sequence.matched_tokens


def _floors_us(cases: Sequence[_Case]) -> list[float]:
    return [_floor_us(case.tokens, case.hit_tokens) for case in cases]


def _floor_us(tokens: NDArray[np.int32] | list[int], hit: int) -> float:
    """Snapshot the prompt, compare the tokens that match."""
    snapshot: Callable[[], bytes] = partial(_pack, tokens) if isinstance(tokens, list) else tokens.tobytes
    symbols = snapshot()
    floor = floor_us(snapshot)
    if hit:
        floor += floor_us(partial(symbols.startswith, bytearray(symbols[: 4 * hit])))
    return floor


def _pack(tokens: list[int]) -> bytes:
    pack = struct.Struct(f"<{_PACK_TOKENS}i").pack
    return b"".join([pack(*tokens[at : at + _PACK_TOKENS]) for at in range(0, len(tokens), _PACK_TOKENS)])


BENCHMARK = Benchmark(unit="µs", yardstick="snapshot and memcmp of the same tokens, µs", measure=_measure)
