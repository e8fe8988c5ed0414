"""ServeGen: how often each client sends, by window. There are no requests in the file, so arrivals are drawn.

A client whose rate in a window is r sends exactly round(r × window) requests in it: the published rates are such counts
divided by the window. The gaps between them follow the fitted law's shape, stretched so that they go once around the
window as around a ring, from a random place on. The fitted scale is not used: for bursty clients its mean is far from
the published rate.

Lengths are not in the file: every request has one prompt token and one generated token.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from simulator.traces.formats.format import NO_BLOCKS, BlockRule, ReadContext, TraceFormat
from simulator.traces.record import TraceRequest
from simulator.traces.rows import COUNT_MAX, Row

__all__ = ["SERVEGEN"]

_WINDOW_S: Final = 600
#: More requests than this are not kept in memory by a load without a limit; the busiest published file has 237 million.
_KEPT_MAX: Final = 5_000_000
_NOTE: Final = "drawn arrivals: the file has rates only, so every request has one prompt and one generated token"
_LAWS: Final = ("", "Exponential", "Gamma", "Weibull")


def _recognises(row: Mapping[str, object]) -> bool:
    return {"client_id", "timestamp", "rate", "cv", "dist"} <= row.keys()


def _read(rows: Iterator[Row], context: ReadContext) -> Iterator[TraceRequest]:
    rates = _Rates()
    last: Row | None = None
    for last in rows:
        rates.add(last)
    total = rates.request_count()
    if last is not None and context.whole and total > _KEPT_MAX:
        raise last.error("rate", f"the rates stand for {total:,} requests: take {_KEPT_MAX:,} or fewer (--limit)")
    context.notes[_NOTE] = 1
    for second, client in rates.arrivals(np.random.default_rng(context.seed)):
        yield TraceRequest(
            input_len=1,
            output_len=1,
            block_tokens=context.block_tokens,
            blocks=NO_BLOCKS,
            arrival_s=second,
            tenant=client,
        )


@final
class _Rates:
    """The file's rows as columns: compact, since windows of all clients are needed before the first request."""

    def __init__(self) -> None:
        self._starts = array("d")
        self._counts = array("l")
        self._clients = array("l")
        self._shapes = array("d")
        self._laws = array("b")
        self._names: dict[str, int] = {}

    def add(self, row: Row) -> None:
        """Take in one client's rate in one window."""
        law = row.text("dist") if row.has("dist") else ""
        if law not in _LAWS:
            raise row.error("dist", f"must be Gamma, Weibull, Exponential or empty, got {law!r}")
        count = round(row.number("rate") * _WINDOW_S)
        if count > COUNT_MAX:
            raise row.error("rate", f"must be at most {COUNT_MAX // _WINDOW_S:,} a second, got {row.number('rate')}")
        shape = row.number("param1") if law in ("Gamma", "Weibull") else 1.0
        if count and not shape > 0:
            raise row.error("param1", f"must be positive, got {shape}")
        if not count:
            return
        self._starts.append(row.number("timestamp"))
        self._counts.append(count)
        client = str(row.label("client_id"))
        self._clients.append(self._names.setdefault(client, len(self._names)))
        self._shapes.append(shape)
        self._laws.append(_LAWS.index(law))

    def request_count(self) -> int:
        """Requests that all rows stand for."""
        return sum(self._counts)

    def arrivals(self, rng: np.random.Generator) -> Iterator[tuple[float, str]]:
        """Arrival in s and client, in order of time, one window in memory at a time."""
        names = list(self._names)
        starts = np.array(self._starts)
        for start in np.unique(starts):
            rows = np.flatnonzero(starts == start).tolist()
            seconds = np.concatenate([start + self._window(row, rng) for row in rows])
            clients = np.repeat([self._clients[row] for row in rows], [self._counts[row] for row in rows])
            order = np.argsort(seconds, kind="stable")
            for second, client in zip(seconds[order].tolist(), clients[order].tolist(), strict=True):
                yield second, names[client]

    def _window(self, row: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Offsets of one client's requests within one window, rising."""
        size, shape, law = self._counts[row], self._shapes[row], _LAWS[self._laws[row]]
        if law == "Weibull":
            gaps = rng.weibull(shape, size)
        elif law == "Gamma":
            gaps = rng.standard_gamma(shape, size)
        else:
            gaps = rng.standard_exponential(size)
        ends = np.cumsum(gaps)
        # A law this heavy can underflow to nothing but zeros; then the requests come at once.
        scale = _WINDOW_S / ends[-1] if ends[-1] > 0 else 0.0
        return np.sort((ends * scale + rng.random() * _WINDOW_S) % _WINDOW_S)


SERVEGEN: Final = TraceFormat(
    name="servegen",
    summary="arrival rates and burstiness per client, requests are drawn (ServeGen)",
    time_unit="600 s windows",
    block_rule=BlockRule.NONE,
    block_tokens=16,
    recognises=_recognises,
    read=_read,
)
