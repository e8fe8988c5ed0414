"""The report as one HTML file that needs nothing else: no network, no fonts, no libraries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from importlib.resources import files

import numpy as np

from simulator.report.curve import CurvePoint, curve_capacities, lru_curve
from simulator.report.plots import Plot, arrivals_plot, distance_plot, hit_curve_plot, lengths_plot
from simulator.result import HIT_DEFINITION, ReplayResult, results_to_json
from simulator.reuse import Reuse
from simulator.sizes import exact_tokens
from simulator.traces.record import LoadedTrace
from simulator.words import counted

__all__ = ["render_report"]

_LRU_POINTS = 160


def render_report(
    results: Sequence[ReplayResult], *, trace: LoadedTrace, reuse: Reuse, optimum: Sequence[CurvePoint] = ()
) -> str:
    """Write the report of one or more runs over one trace.

    Args:
        results: at least one; all over ``trace`` under the hit rule of ``reuse``.
        optimum: points of the offline optimum, for the curve.

    Returns:
        An HTML document. It holds the results as JSON in ``<script id="results">`` and the curve in ``id="curve"``.

    Raises:
        ReportUnavailable: matplotlib is not installed.
    """
    first = results[0]
    capacities = curve_capacities(
        point_count=_LRU_POINTS,
        unique_blocks=reuse.unique_blocks,
        include=[result.device.capacity_tokens // first.block_tokens for result in results],
    )
    lru = lru_curve(reuse, capacities, block_tokens=first.block_tokens)
    stamps = [request.arrival_s for request in trace.requests if request.arrival_s is not None]
    plots = [
        hit_curve_plot(lru=lru, optimum=optimum, reuse=reuse, results=results),
        distance_plot(reuse, block_tokens=first.block_tokens),
        arrivals_plot(np.array(stamps)) if len(stamps) == len(trace.requests) else None,
        lengths_plot(np.array([request.input_len for request in trace.requests], np.int64)),
    ]
    curve = {"lru": [asdict(point) for point in lru], "optimum": [asdict(point) for point in optimum]}
    return _document(
        title=f"kvsim replay of {first.trace}",
        body=[
            _head(first),
            _facts(first, reuse),
            *(f'<p class="warning">{escape(warning)}</p>' for warning in first.warnings),
            "<h2>Runs</h2>",
            _summary(results),
            "<h2>Pictures</h2>",
            f'<div class="plots">{"".join(_figure(plot) for plot in plots if plot is not None)}</div>',
            "<h2>What counts as a hit</h2>",
            f"<p>{escape(HIT_DEFINITION)}</p>",
            "<h2>Options and origin</h2>",
            _origin(results, trace.format),
            f"<footer>Made by kvsim {escape(first.version)}. The numbers are in this file as JSON: "
            "script elements “results” and “curve”.</footer>",
            _embedded("results", results_to_json(results)),
            _embedded("curve", json.dumps(curve)),
        ],
    )


def _document(*, title: str, body: Iterable[str]) -> str:
    assets = files(__package__)
    style = assets.joinpath("page.css").read_text(encoding="utf-8")
    script = assets.joinpath("sort.js").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + f"\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _head(result: ReplayResult) -> str:
    capacity = result.device.capacity_tokens
    name = re.sub(r"([_/?&-])", r"\1<wbr>", escape(result.trace))
    blocks = counted(capacity // result.block_tokens, "block")
    return (
        f'<header><h1>{name}</h1><p class="lead">What a device tier of {exact_tokens(capacity)} = {blocks} '
        f"would have hit, by hit rule “{result.hit_rule}”.</p></header>"
    )


def _facts(result: ReplayResult, reuse: Reuse) -> str:
    facts = {
        "requests": f"{result.requests:,}",
        "input tokens": f"{result.input_tokens:,}",
        "block accesses": f"{result.block_accesses:,}",
        "unique blocks": f"{result.unique_blocks:,}",
        "tokens per block": f"{result.block_tokens:,}",
        "infinite cache hits": _percent(reuse.hit_tokens, reuse.input_tokens),
    }
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in facts.items())
    return f'<dl class="facts">{items}</dl>'


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """What a cell shows, and what its column is sorted by."""

    text: str
    value: str | float


_COLUMNS = (
    "policy",
    "hit blocks",
    "block hit rate",
    "token hit rate",
    "share of the ceiling",
    "computed tokens",
    "evicted blocks",
    "requests per second",
)


def _summary(results: Sequence[ReplayResult]) -> str:
    heads = "".join(f'<th scope="col"><button type="button">{escape(name)}</button></th>' for name in _COLUMNS)
    rows = [_row(_run_cells(result)) for result in results]
    rows.append(_row(_ceiling_cells(results[0]), kind="bound"))
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="scroll" tabindex="0">{table}</div>'


def _row(cells: Sequence[_Cell], *, kind: str = "run") -> str:
    parts = [f'<td data-value="{escape(str(cell.value))}">{escape(cell.text)}</td>' for cell in cells]
    return f'<tr class="{kind}">{"".join(parts)}</tr>'


def _run_cells(result: ReplayResult) -> list[_Cell]:
    return [
        _Cell(text=result.policy, value=result.policy),
        _count(result.hit_blocks),
        _share(result.hit_blocks, result.block_accesses),
        _share(result.hit_tokens, result.input_tokens),
        _share(result.hit_tokens, result.ceiling.hit_tokens),
        _count(result.computed_tokens),
        _count(result.device.evicted_blocks),
        _count(round(result.requests_per_second)),
    ]


def _ceiling_cells(result: ReplayResult) -> list[_Cell]:
    ceiling = result.ceiling
    return [
        _Cell(text="infinite cache", value="infinite cache"),
        _count(ceiling.hit_blocks),
        _share(ceiling.hit_blocks, result.block_accesses),
        _share(ceiling.hit_tokens, result.input_tokens),
        _share(ceiling.hit_tokens, ceiling.hit_tokens),
        _count(result.input_tokens - ceiling.hit_tokens),
        _count(0),
        _Cell(text="–", value=0),
    ]


def _count(number: int) -> _Cell:
    return _Cell(text=f"{number:,}", value=number)


def _share(part: int, whole: int) -> _Cell:
    return _Cell(text=_percent(part, whole), value=part / whole if whole else 0.0)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "–"


def _figure(plot: Plot) -> str:
    return (
        f"<figure><h3>{escape(plot.title)}</h3>"
        f'<div role="img" aria-label="{escape(plot.alt)}">{plot.svg}</div>'
        f"<figcaption>{escape(plot.caption)}</figcaption></figure>"
    )


def _origin(results: Sequence[ReplayResult], trace_format: str) -> str:
    result = results[0]
    tier = result.device.capacity_tokens
    facts: dict[str, object] = {
        **{key.replace("_", " "): value for key, value in result.options.items() if value not in (None, False)},
        "policy": ", ".join(run.policy for run in results),
        "device tier": f"{exact_tokens(tier)} = {counted(tier // result.block_tokens, 'block')}",
        "tokens per block": f"{result.block_tokens:,}",
        "format": trace_format,
        "seed": result.seed,
        "trace": result.trace,
        "trace SHA-256": result.trace_digest,
        "version": result.version,
    }
    rows = "".join(
        f'<tr><th scope="row">{escape(key)}</th><td>{escape(str(value))}</td></tr>' for key, value in facts.items()
    )
    return f'<table class="options"><tbody>{rows}</tbody></table>'


def _embedded(name: str, text: str) -> str:
    """JSON that a page can hold: ``<`` inside strings must not end the element."""
    safe = text.strip().replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">\n{safe}\n</script>'
