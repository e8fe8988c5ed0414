"""What the terminal shows: results, descriptions, and what there is to choose from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from simulator.describe import Arrivals, BlockReuse, Description, Lengths, Quantiles
from simulator.number_table import NumberTable, plain_table
from simulator.result import HIT_DEFINITION, ReplayResult
from simulator.sizes import exact_tokens, format_tokens
from simulator.words import counted

__all__ = ["choices_table", "description_tables", "replay_tables"]


def replay_tables(results: Sequence[ReplayResult]) -> RenderableType:
    """One row a run, the ceiling below, and around them what was replayed and what counts as a hit.

    Args:
        results: at least one, all over one trace.
    """
    first = results[0]
    table = NumberTable(
        *("policy", "hit blocks", "block hits", "token hits", "of ceiling", "computed tokens", "evicted", "requests/s"),
        optional=("requests/s", "evicted", "computed tokens", "hit blocks"),
    )
    for result in results:
        table.add_row(
            result.policy,
            _count(result.hit_blocks),
            _percent(result.hit_blocks, result.block_accesses),
            _percent(result.hit_tokens, result.input_tokens),
            _percent(result.hit_tokens, result.ceiling.hit_tokens),
            _count(result.computed_tokens),
            _count(result.device.evicted_blocks),
            _count(round(result.requests_per_second)),
        )
    ceiling = first.ceiling
    table.add_row(
        "infinite cache",
        _count(ceiling.hit_blocks),
        _percent(ceiling.hit_blocks, first.block_accesses),
        _percent(ceiling.hit_tokens, first.input_tokens),
        _percent(ceiling.hit_tokens, ceiling.hit_tokens),
        _count(first.input_tokens - ceiling.hit_tokens),
        "0",
        "–",
        style="dim",
    )
    return Group(
        *_title(first.trace, first.warnings),
        _text(
            f"{counted(first.requests, 'request')}, {counted(first.input_tokens, 'input token')}, "
            f"{counted(first.block_accesses, 'access', 'accesses')} to {counted(first.unique_blocks, 'block')} of "
            f"{counted(first.block_tokens, 'token')}"
        ),
        _text(
            f"device tier: {exact_tokens(first.device.capacity_tokens)} = "
            f"{counted(first.device.capacity_tokens // first.block_tokens, 'block')}; hit rule: {first.hit_rule}"
        ),
        "",
        table,
        "",
        _text(HIT_DEFINITION, style="dim"),
    )


def description_tables(description: Description) -> RenderableType:
    """Everything that is known of a trace before a run."""
    sessions = f", {counted(description.sessions, 'session')}" if description.sessions else ""
    parts: list[RenderableType] = [
        *_title(description.name, description.warnings),
        _text(f"format {description.format}, blocks of {counted(description.block_tokens, 'token')}"),
        _text(counted(description.requests, "request") + sessions),
        "",
        _lengths_table({"input tokens": description.input, "output tokens": description.output}),
    ]
    if description.arrivals is not None:
        parts += ["", _pairs("arrivals", _arrival_pairs(description.arrivals))]
    reuse = description.reuse
    if reuse is not None:
        parts += ["", _pairs("reuse", _reuse_pairs(reuse)), "", _quantiles_table(reuse), "", _lru_table(reuse)]
        parts += ["", _text(HIT_DEFINITION, style="dim")]
    return Group(*parts)


def choices_table(title: str, choices: Mapping[str, str]) -> Table:
    """Names to choose from, each with what it is."""
    table = plain_table()
    table.add_column(title, no_wrap=True)
    table.add_column("")
    for name, meaning in choices.items():
        table.add_row(_text(name), _text(meaning))
    return table


def _lengths_table(lengths: Mapping[str, Lengths]) -> NumberTable:
    table = NumberTable("per request", "total", "mean", "p50", "p90", "p99", "max")
    for name, row in lengths.items():
        values = (row.total, row.mean, row.p50, row.p90, row.p99, row.max)
        table.add_row(name, *(_count(round(value)) for value in values))
    return table


def _arrival_pairs(arrivals: Arrivals) -> Iterable[tuple[str, str]]:
    yield "duration", f"{arrivals.duration_s:,.0f} s"
    yield "mean rate", f"{arrivals.rate_per_s:.3g} /s"
    yield "distinct time stamps", _count(arrivals.distinct_stamps)
    yield "gaps: deviation ÷ mean (Poisson 1)", _number(arrivals.gap_cv)
    yield "10 s counts: variance ÷ mean (Poisson 1)", _number(arrivals.fano_10s)
    yield "peak minute ÷ mean", _number(arrivals.peak_minute_over_mean)


def _reuse_pairs(reuse: BlockReuse) -> Iterable[tuple[str, str]]:
    yield "block accesses", _count(reuse.block_accesses)
    yield "unique blocks", f"{_count(reuse.unique_blocks)} = {exact_tokens(reuse.unique_tokens)}"
    yield "ceiling (infinite cache), hit blocks", _count(reuse.ceiling_hit_blocks)
    yield "ceiling, block hit rate", _rate(reuse.ceiling_block_hit_rate)
    yield "ceiling, token hit rate", _rate(reuse.ceiling_token_hit_rate)
    yield "requests with a hit", _rate(reuse.hit_request_share)
    yield "blocks used once", _rate(reuse.used_once_share)
    yield "reuses by the most used tenth", _rate(reuse.top_tenth_reuse_share)
    yield "working set of the optimum, blocks", _count(reuse.working_set_blocks)


def _quantiles_table(reuse: BlockReuse) -> NumberTable:
    table = NumberTable("blocks that come back", "p10", "p50", "p90", "p99")
    for name, row in (("reuse distance, blocks", reuse.distance_blocks), ("since last use, s", reuse.gap_s)):
        if row is not None:
            table.add_row(name, *(_count(round(value)) for value in _quantile_values(row)))
    return table


def _quantile_values(row: Quantiles) -> tuple[float, ...]:
    return row.p10, row.p50, row.p90, row.p99


def _lru_table(reuse: BlockReuse) -> NumberTable:
    heads = ("LRU of tokens", "blocks", "hit blocks", "block hit rate", "token hit rate")
    table = NumberTable(*heads, optional=("hit blocks", "block hit rate"))
    for point in reuse.lru:
        table.add_row(
            format_tokens(point.capacity_tokens),
            _count(point.capacity_blocks),
            _count(point.hit_blocks),
            _rate(point.block_hit_rate),
            _rate(point.token_hit_rate),
        )
    return table


def _pairs(title: str, pairs: Iterable[tuple[str, str]]) -> NumberTable:
    table = NumberTable(title, "")
    for name, value in pairs:
        table.add_row(name, value)
    return table


def _title(name: str, warnings: Iterable[str]) -> list[Text]:
    return [_text(name, style="bold"), *(_text(f"warning: {warning}", style="yellow") for warning in warnings)]


def _text(words: str, *, style: str = "") -> Text:
    """Words as they are: no markup, so that a bracket in a file's name stays one."""
    return Text(words, style=style)


def _count(number: int) -> str:
    return f"{number:,}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "–"


def _rate(share: float) -> str:
    return f"{100 * share:.2f} %"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
