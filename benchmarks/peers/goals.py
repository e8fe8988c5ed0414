"""How far ahead do we promise to be? Every goal is a bound on a ratio within one run, or on a size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import cells
from results import Ratio, Results, cpu_us, figure

__all__ = ["Verdict", "judge"]

_RUST, _PYTHON, _VLLM = "sglang-rust", "sglang-python", "vllm"
_PEERS = (_RUST, _PYTHON, _VLLM)
_1K, _8K, _32K, _128K = cells.TOKEN_COUNTS

#: cell → how many times our CPU time SGLang's Rust tree and vLLM must need at least
_REQUEST_GOALS: dict[str, tuple[float, float]] = {
    cells.cached(_1K, cells.BUFFER): (2, 25),
    cells.cached(_8K, cells.BUFFER): (3, 150),
    cells.cached(_128K, cells.BUFFER): (4, 400),
    cells.cached(_8K, cells.LIST): (1.3, 10),
    cells.cached(_32K, cells.LIST): (1.3, 10),
    cells.cached(_128K, cells.LIST): (1.3, 10),
    cells.new(_8K, cells.BUFFER): (8, 80),
    cells.new(_32K, cells.BUFFER): (4, 60),
}
_CONVERSATION_TIMES_MIN = 5
_LONG_CONVERSATION_GROWTH_MAX = 1.5
_EVICT_TIMES_MIN = 6
_EVICT_GROWTH_MAX = 1.5
_BYTES_PER_PAGE_MAX = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One goal and what was found."""

    goal: str
    bound: str
    found: Ratio | None  #: None: not measured, which does not pass
    passed: bool  #: by the better of the rounds
    firm: bool  #: also by the lowest of the rounds


def judge(results: Results) -> Iterator[Verdict]:
    """Every goal, in the order of the README's table."""
    for cell, (rust, vllm) in _REQUEST_GOALS.items():
        yield _at_least(f"{cell}: SGLang Rust / ours", rust, results.advantage(cell, [_RUST], cpu_us))
        yield _at_least(f"{cell}: vLLM / ours", vllm, results.advantage(cell, [_VLLM], cpu_us))
    for token_count in cells.TOKEN_COUNTS:
        cell = cells.cached(token_count, cells.BUFFER, turns=cells.CONVERSATION_TURNS)
        yield _at_least(
            f"{cell}: SGLang Rust / ours", _CONVERSATION_TIMES_MIN, results.advantage(cell, [_RUST], cpu_us)
        )
    for token_count in cells.LONG_CONVERSATION_TOKEN_COUNTS:
        cell = cells.cached(token_count, cells.BUFFER, turns=cells.LONG_CONVERSATION_TURNS)
        growth = results.growth(cell, cells.cached(token_count, cells.BUFFER), cpu_us)
        yield _below(f"{cell}: / in one commit", _LONG_CONVERSATION_GROWTH_MAX, growth)
    for evicted in cells.EVICTED_PAGE_COUNTS:
        for pool in cells.POOL_PAGE_COUNTS:
            cell = cells.evict(evicted, pool)
            yield _at_least(f"{cell}: fastest peer / ours", _EVICT_TIMES_MIN, results.advantage(cell, _PEERS, cpu_us))
        small, large = (cells.evict(evicted, pool) for pool in cells.POOL_PAGE_COUNTS)
        yield _below(f"{large}: / {small}", _EVICT_GROWTH_MAX, results.growth(large, small, cpu_us))
    cell = cells.memory(cells.POOL_PAGE_COUNTS[-1])
    size = results.lowest(cells.OURS, cell, figure("bytes_per_page"))
    found = None if size is None else Ratio(better_round=size, of_lowest=size)
    yield _below(f"{cell}: bytes per page", _BYTES_PER_PAGE_MAX, found)


def _at_least(goal: str, bound: float, found: Ratio | None) -> Verdict:
    return Verdict(
        goal=goal,
        bound=f">= {bound:g}",
        found=found,
        passed=found is not None and found.better_round >= bound,
        firm=found is not None and found.of_lowest >= bound,
    )


def _below(goal: str, bound: float, found: Ratio | None) -> Verdict:
    return Verdict(
        goal=goal,
        bound=f"<= {bound:g}",
        found=found,
        passed=found is not None and found.better_round <= bound,
        firm=found is not None and found.of_lowest <= bound,
    )
