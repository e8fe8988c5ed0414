"""How does the README show a run? As Markdown tables made from its JSON and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import cells
from manager import MANAGERS
from results import Clock, Results, cpu_us, figure

__all__ = ["markdown"]

_PEERS = [name for name in MANAGERS if name != cells.OURS]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    title: str
    cell: str
    clock: Clock
    more_is_better: bool = False


def markdown(results: Results, clock: Clock = cpu_us) -> str:
    """The tables, and below them what they were made from."""
    blocks = [_timing_table(results, clock)]
    if any(results.values(cells.OURS, cells.trace(form), clock) for form in (cells.LIST, cells.BUFFER)):
        blocks.append(_trace_table(results))
    blocks.append(_origin(results))
    return "\n\n".join(blocks)


def _timing_table(results: Results, clock: Clock) -> str:
    lines = _head("µs for one call", [MANAGERS[name].title for name in (cells.OURS, *_PEERS)])
    for row in _rows(clock):
        ours = results.lowest(cells.OURS, row.cell, row.clock)
        peers = [_against(results, row, peer) for peer in _PEERS]
        if ours is not None:
            lines.append(_line([row.title, _number(ours), *peers]))
    return "\n".join(lines)


def _rows(clock: Clock) -> Iterator[_Row]:
    for form in (cells.BUFFER, cells.NATIVE, cells.LIST):
        for count in cells.TOKEN_COUNTS:
            title = f"begin + release, cached, {_FORM_TITLES[form]}, {_tokens(count)}"
            yield _Row(title=title, cell=cells.cached(count, form), clock=clock)
    for turns in (cells.CONVERSATION_TURNS, cells.LONG_CONVERSATION_TURNS):
        for count in cells.TOKEN_COUNTS:
            title = f"the same after {turns} turns, numpy, {_tokens(count)}"
            yield _Row(title=title, cell=cells.cached(count, cells.BUFFER, turns=turns), clock=clock)
    for title, name in (("match, half shared", cells.half), ("match, nothing shared", cells.miss)):
        for count in cells.TOKEN_COUNTS:
            yield _Row(title=f"{title}, numpy, {_tokens(count)}", cell=name(count, cells.BUFFER), clock=clock)
    for form in (cells.BUFFER, cells.LIST):
        for count in cells.TOKEN_COUNTS:
            title = f"reserve + commit + release, new, {form}, {_tokens(count)}"
            yield _Row(title=title, cell=cells.new(count, form), clock=clock)
    for evicted in cells.EVICTED_PAGE_COUNTS:
        for pool in cells.POOL_PAGE_COUNTS:
            title = f"replace {evicted:,} cold pages of {pool:,}"
            yield _Row(title=title, cell=cells.evict(evicted, pool), clock=clock)
    pool = cells.POOL_PAGE_COUNTS[-1]
    yield _Row(
        title=f"bytes for each of {pool:,} cached pages", cell=cells.memory(pool), clock=figure("bytes_per_page")
    )


_FORM_TITLES = {cells.BUFFER: "numpy", cells.NATIVE: "own buffer", cells.LIST: "list"}


def _trace_table(results: Results) -> str:
    lines = _head("trace replay", [MANAGERS[name].title for name in (cells.OURS, *_PEERS)])
    for form in (cells.BUFFER, cells.LIST):
        cell = cells.trace(form)
        for row in (
            _Row(
                title=f"requests per CPU second, {form}",
                cell=cell,
                clock=figure("requests_per_cpu_s"),
                more_is_better=True,
            ),
            _Row(title=f"median, {form}, µs of CPU", cell=cell, clock=cpu_us),
            _Row(title=f"p99, {form}, µs of CPU", cell=cell, clock=lambda figures: float(figures["cpu_us"]["p99"])),
        ):
            ours = _best(results, cells.OURS, row)
            lines.append(_line([row.title, _number(ours), *(_against(results, row, peer) for peer in _PEERS)]))
    for title, name in (("token hit ratio", "token_hit_ratio"), ("memory grown by, MB", "resident_mb")):
        found = [results.lowest(manager, cells.trace(cells.LIST), figure(name)) for manager in (cells.OURS, *_PEERS)]
        lines.append(_line([title, *("–" if value is None else f"{value:g}" for value in found)]))
    return "\n".join(lines)


def _best(results: Results, manager: str, row: _Row) -> float | None:
    return (max if row.more_is_better else min)(results.values(manager, row.cell, row.clock).values(), default=None)


def _against(results: Results, row: _Row, peer: str) -> str:
    """The peer's value, and how many times ours it is (or ours it, where more is better)."""
    ours, theirs = _best(results, cells.OURS, row), _best(results, peer, row)
    if ours is None or theirs is None:
        return "–"
    return f"{_number(theirs)} ({_times(ours / theirs if row.more_is_better else theirs / ours)})"


def _origin(results: Results) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in sorted(results.versions.items()))
    machine = results.machine
    return (
        f"Pages of {results.page_tokens} tokens; medians, the lower of {results.rounds} interleaved rounds; "
        f"in brackets how many times ours. {machine['cpu']}, {machine['cores']} cores; {versions}; "
        f"commit {results.commit[:10]}, {results.created[:10]}."
    )


def _head(first: str, titles: list[str]) -> list[str]:
    return [_line([first, *titles]), _line(["---", *("---:" for _ in titles)])]


def _line(fields: list[str]) -> str:
    return f"| {' | '.join(fields)} |"


def _tokens(count: int) -> str:
    return f"{count >> 10}k"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}×" if ratio >= 20 else f"{ratio:.1f}×"
