"""The report's pictures: SVG that takes its colours from the page, so that one file serves light, dark and paper."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simulator.errors import SimulatorError
from simulator.report.curve import CurvePoint
from simulator.result import ReplayResult
from simulator.reuse import Reuse
from simulator.sizes import format_tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "Plot",
    "ReportUnavailable",
    "arrivals_plot",
    "distance_plot",
    "hit_curve_plot",
    "lengths_plot",
    "require_plots",
]

#: Colours that no one would draw with, and what the page puts in their place.
_INK, _GRID, _BLUE, _ORANGE, _GREEN, _PAPER = "#010101", "#010102", "#010103", "#010104", "#010105", "#010106"
_COLOURS = {
    _INK: "currentColor",
    _GRID: "var(--grid)",
    _BLUE: "var(--blue)",
    _ORANGE: "var(--orange)",
    _GREEN: "var(--green)",
    _PAPER: "var(--paper)",
}
_STYLE: Any = {  # matplotlib types its settings by a private enumeration of their names
    "svg.fonttype": "none",  # text stays text: it can be searched and takes the page's font
    "svg.hashsalt": "kvsim",  # the same picture has the same bytes
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "ytick.major.size": 0,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}
_INCHES = (4.4, 3.0)  # narrow, so that its 9 pt text is still readable when a phone shows the picture at full width
_DASHED = (0, (4, 3))
_ARRIVAL_SLICES = 60


class ReportUnavailable(SimulatorError):
    """The report's pictures need a library that is not installed."""

    def __init__(self) -> None:
        super().__init__("the HTML report needs matplotlib: pip install matplotlib")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One picture, and the words for those who do not see it."""

    title: str
    caption: str  #: what is drawn
    alt: str  #: what it shows, with the numbers
    svg: str


def require_plots() -> None:
    """Find out before a long run whether pictures can be drawn after it.

    Raises:
        ReportUnavailable: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl  # noqa: F401, PLC0415 - optional and slow: loaded where it is used
    except ImportError as error:
        raise ReportUnavailable from error


def hit_curve_plot(
    *, lru: Sequence[CurvePoint], optimum: Sequence[CurvePoint], reuse: Reuse, results: Sequence[ReplayResult]
) -> Plot:
    """Token hit rate over cache size: LRU at every size, the optimum at some, the ceiling, and the runs.

    The optimum is drawn as points: a line through a few of them would lie below LRU here and there.
    """
    percent = 100 / max(1, reuse.input_tokens)
    ceiling = percent * reuse.hit_tokens

    def paint(axes: Axes) -> None:
        axes.axhline(ceiling, color=_INK, linestyle=_DASHED, linewidth=1.2, label=f"infinite cache, {ceiling:.1f} %")
        axes.plot(*_sizes_and_rates(lru, percent), color=_BLUE, label="LRU")
        if optimum:
            points = _sizes_and_rates(optimum, percent)
            axes.plot(*points, color=_GREEN, marker="o", markersize=4.5, linestyle="none", label="optimum")
        for names, at, rate in _marks(results, apart=ceiling / 12):
            axes.plot([at], [rate], color=_ORANGE, marker="D", markersize=7, markeredgecolor=_PAPER, linestyle="none")
            left = at * at > lru[0].capacity_tokens * lru[-1].capacity_tokens  # of the mark, where the right is short
            axes.annotate(
                names,
                (at, rate),
                xytext=(-7 if left else 7, -10),
                textcoords="offset points",
                ha="right" if left else "left",
            )
        axes.set_ylim(0, max(1.0, ceiling * 1.12))
        axes.set_ylabel("token hit rate, %")
        _tokens_axis(axes, "device tier, tokens")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderpad=0, handlelength=1.6, columnspacing=1.2)

    runs = [
        f"{run.policy} {100 * run.token_hit_rate:.1f} % at {format_tokens(run.device.capacity_tokens)}"
        for run in results
    ]
    measured = (
        "the optimum was measured at the points only"
        if optimum
        else f"the optimum is left out, since each of its points takes a replay of {results[0].requests:,} requests"
    )
    return Plot(
        title="Hit rate by cache size",
        caption="Share of input tokens that need not be computed. The LRU line is exact at every size, from stack "
        f"distances; {measured}; the diamonds are the runs of this report.",
        alt=f"Token hit rate over cache size. An infinite cache reaches {ceiling:.1f} %. Runs: {'; '.join(runs)}.",
        svg=_draw("hit-curve", paint),
    )


def distance_plot(reuse: Reuse, *, block_tokens: int) -> Plot | None:
    """How large an LRU must be for each reuse to hit: a histogram and its sum so far; None without reuse."""
    counts = _by_octave(reuse.blocks_at_distance)
    if not counts.sum():
        return None
    share = 100 * counts / counts.sum()
    edges = block_tokens * np.exp2(np.arange(len(counts) + 1))

    def paint(axes: Axes) -> None:
        axes.stairs(share, edges, color=_BLUE, fill=True, alpha=0.45, label="in this octave")
        axes.plot(edges[1:], np.cumsum(share), color=_ORANGE, label="up to here")
        axes.set_ylim(0, 105)
        axes.set_ylabel("share of reuses, %")
        _tokens_axis(axes, "reuse distance, tokens")
        axes.legend(loc="upper left")

    quantiles = [block_tokens * (reuse.distance_quantile(share) or 0) for share in (0.1, 0.5, 0.9)]
    words = " / ".join(format_tokens(tokens) for tokens in quantiles)
    return Plot(
        title="Reuse distance",
        caption="Distinct blocks touched since a block's last use, in tokens: an LRU of that size just holds it. "
        f"p10 / p50 / p90: {words}.",
        alt=f"Histogram of reuse distances. The 10th, 50th and 90th percentiles are {words} tokens.",
        svg=_draw("distance", paint),
    )


def arrivals_plot(arrival_s: NDArray[np.float64]) -> Plot | None:
    """Requests per second over the trace; None if all arrive at once.

    Args:
        arrival_s: seconds; at least one.
    """
    since_first = arrival_s - arrival_s.min()
    span = float(since_first.max())
    if span <= 0:
        return None
    counts, edges = np.histogram(since_first, bins=_ARRIVAL_SLICES)
    rate, mean = counts * _ARRIVAL_SLICES / span, len(arrival_s) / span
    unit, unit_s = ("hours", 3600.0) if span > 4 * 3600 else ("minutes", 60.0) if span > 240 else ("seconds", 1.0)

    def paint(axes: Axes) -> None:
        axes.stairs(rate, edges / unit_s, color=_BLUE, fill=True, alpha=0.45)
        axes.axhline(mean, color=_INK, linestyle=_DASHED, linewidth=1.2, label=f"mean {mean:.3g}/s")
        axes.set_ylim(0, float(rate.max()) * 1.25)
        axes.set_ylabel("requests per second")
        axes.set_xlabel(f"{unit} since the first request")
        axes.legend(loc="upper right")

    return Plot(
        title="Arrivals",
        caption=f"Requests per second in {_ARRIVAL_SLICES} slices of {span / _ARRIVAL_SLICES:,.1f} s.",
        alt=f"Arrival rate over {span / unit_s:.3g} {unit}: mean {mean:.3g}, peak {rate.max():.3g} per second.",
        svg=_draw("arrivals", paint),
    )


def lengths_plot(input_len: NDArray[np.int64]) -> Plot:
    """Distribution of prompt lengths, by half octaves."""
    lengths = np.maximum(input_len, 1)
    low, high = np.floor(np.log2(lengths.min())), np.floor(np.log2(lengths.max())) + 1
    edges = np.exp2(np.arange(low, high + 0.25, 0.5))
    share = 100 * np.histogram(lengths, bins=edges)[0] / len(lengths)
    quantiles = {name: round(float(np.quantile(lengths, q))) for name, q in _QUANTILES.items()}

    def paint(axes: Axes) -> None:
        axes.stairs(share, edges, color=_BLUE, fill=True, alpha=0.45)
        for row, (name, tokens) in enumerate(quantiles.items()):
            axes.axvline(tokens, color=_INK, linestyle=_DASHED, linewidth=1)
            axes.annotate(name, (tokens, share.max() * (1.24 - 0.09 * row)), xytext=(3, 0), textcoords="offset points")
        axes.set_ylim(0, share.max() * 1.35)
        axes.set_ylabel("share of requests, %")
        _tokens_axis(axes, "prompt, tokens")

    words = ", ".join(f"{name} {tokens:,}" for name, tokens in quantiles.items())
    return Plot(
        title="Prompt lengths",
        caption=f"Share of requests by prompt length, in half octaves. {words} tokens.",
        alt=f"Histogram of prompt lengths in tokens: {words}.",
        svg=_draw("lengths", paint),
    )


def _sizes_and_rates(points: Sequence[CurvePoint], percent: float) -> tuple[list[int], list[float]]:
    """Both axes of the hit curve; ``percent`` is that of one token."""
    return [point.capacity_tokens for point in points], [percent * point.hit_tokens for point in points]


def _marks(results: Sequence[ReplayResult], *, apart: float) -> list[tuple[str, int, float]]:
    """Where to put the runs; those that lie closer than their names are high share one mark."""
    marks: list[tuple[str, int, float]] = []
    for result in sorted(results, key=lambda result: (-result.token_hit_rate, result.policy)):
        at, rate = result.device.capacity_tokens, 100 * result.token_hit_rate
        if marks and marks[-1][1] == at and marks[-1][2] - rate < apart:
            marks[-1] = (f"{marks[-1][0]}, {result.policy}", at, marks[-1][2])
        else:
            marks.append((result.policy, at, rate))
    return marks


_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def _by_octave(blocks_at_distance: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts of distances in [1, 2), [2, 4), [4, 8) and so on."""
    octave = np.frexp(np.arange(1, len(blocks_at_distance), dtype=np.float64))[1] - 1
    return np.bincount(octave, weights=blocks_at_distance[1:]).astype(np.int64)


def _tokens_axis(axes: Axes, label: str) -> None:
    """A logarithmic axis in tokens that reads 64K, 1M, 16M."""
    axes.set_xscale("log", base=2)
    low, high = axes.get_xlim()
    exponents = range(int(np.ceil(np.log2(low))), int(np.floor(np.log2(high))) + 1)
    step = max(1, -(-len(exponents) // 8))
    ticks = [2.0**exponent for exponent in exponents if exponent % step == 0]
    axes.set_xticks(ticks, [format_tokens(int(tick)) if tick >= 1 else "" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(low, high)
    axes.set_xlabel(label)


def _draw(name: str, paint: Callable[[Axes], None]) -> str:
    """One picture as an ``<svg>`` element that may stand in a page beside others."""
    import matplotlib as mpl  # noqa: PLC0415 - optional and slow: loaded where it is used
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_INCHES, layout="constrained")
        paint(figure.add_subplot())
        target = io.StringIO()
        figure.savefig(target, format="svg", transparent=True, metadata={"Date": None})
    return _inline(target.getvalue(), name)


def _inline(document: str, name: str) -> str:
    """Take the ``<svg>`` out of its document: no prologue, no foreign addresses, ids of its own, the page's colours."""
    svg = document[document.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:\w+)?="[^"]*"', "", svg)
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r'<svg (?=[^>]*viewBox)(.*?)width="[^"]*"', r"<svg \1", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r'(<svg [^>]*?)height="[^"]*"', r'\1aria-hidden="true"', svg, count=1)
    for colour, replacement in _COLOURS.items():
        svg = svg.replace(colour, replacement)
    return svg.strip()
