"""Reads a whole trace and makes it ready to run: blocks of one size, dense ids, requests in order of arrival."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Literal

from simulator.errors import TraceError
from simulator.traces.arrivals import Starts, estimate_starts, unit_warning
from simulator.traces.arrivals import dejitter as spread_ticks
from simulator.traces.blocks import BlockNames, renumber, share_prefixes
from simulator.traces.formats.format import BlockRule
from simulator.traces.record import LoadedTrace, TraceRequest
from simulator.traces.rows import NUMBER_MAX
from simulator.traces.sessions import group_sessions, resolve_turns, spread_starts, user_starts
from simulator.traces.trace import Trace
from simulator.words import counted

__all__ = ["load"]


def load(
    trace: Trace,
    *,
    block_tokens: int | None = None,
    partial: Literal["count", "drop"] = "count",
    prefix: Literal["refuse", "rechain"] = "refuse",
    mismatch: Literal["refuse", "repair"] = "refuse",
    limit: int | None = None,
    users: int | None = None,
    spread_s: float | None = None,
    seed: int = 0,
    dejitter: bool = False,
) -> LoadedTrace:
    """Read a trace to its end.

    Requests come in order of arrival; those of one instant in order of the file. What had to be assumed or mended is
    said in ``warnings``. Repeated rows are kept: who asks twice is served twice.

    Args:
        trace: what to read.
        block_tokens: size of a block. A multiple of the trace's groups its blocks, a divisor splits them (flagged,
            since sharing inside a hashed block is unknown). Traces with tokens or text take any size.
        partial: ``count`` takes the started last block of a hashed trace for a block, as its publishers count; ``drop``
            leaves it out, as an engine shares full blocks only.
        prefix: what to do with ids that do not name whole prefixes: refuse the trace, or name blocks by their path.
        mismatch: what to do with a row whose ids do not fit its length: refuse the trace, or cut the longer one.
        limit: stop after so many requests, in order of the file.
        users: play sessions so many at a time (see ``simulator.traces.sessions``).
        spread_s: start sessions at random times within so many seconds.
        seed: of everything that is drawn.
        dejitter: spread requests of one stamp up to the next stamp.

    Raises:
        TraceError: a row is malformed or the trace cannot be read as asked; names file, line and field.
    """
    _check(trace, block_tokens=block_tokens, limit=limit, users=users, spread_s=spread_s)
    names = BlockNames(trace, block_tokens=block_tokens, count_started=partial == "count", rechain=prefix == "rechain")
    read = _read(trace, names, limit=limit, seed=seed, repair=mismatch == "repair")
    timing = _arrange(trace, read, users=users, spread_s=spread_s, seed=seed)
    if dejitter:
        spread_ticks(timing.requests, seed=seed)
    unique_blocks = renumber(timing.requests, names.bound)
    warnings = [*trace.notes, *_block_warnings(trace, names, read.requests), *timing.warnings]
    return LoadedTrace(
        name=trace.name,
        digest=trace.digest,
        format=trace.format.name,
        block_tokens=names.block_tokens,
        requests=timing.requests,
        unique_blocks=unique_blocks,
        seed=seed,
        warnings=tuple(warnings),
    )


@dataclass(frozen=True, slots=True)
class _Read:
    """Requests in order of the file, and for each the session it belongs to."""

    requests: list[TraceRequest]
    sessions: list[Hashable]


@dataclass(frozen=True, slots=True)
class _Timing:
    """Requests in order of arrival."""

    requests: list[TraceRequest]
    warnings: list[str]


def _check(
    trace: Trace, *, block_tokens: int | None, limit: int | None, users: int | None, spread_s: float | None
) -> None:
    for name, value in (("block_tokens", block_tokens), ("limit", limit), ("users", users)):
        if value is not None and value < 1:
            raise TraceError(f"{name} must be at least 1, got {value}", source=trace.path)
    if spread_s is not None and not 0 <= spread_s <= NUMBER_MAX:
        raise TraceError(f"spread_s must be from 0 to {NUMBER_MAX:,}, got {spread_s}", source=trace.path)
    if users is not None and spread_s is not None:
        raise TraceError(
            "users (--users) and spread_s (--spread) both say when sessions start: give one", source=trace.path
        )


def _read(trace: Trace, names: BlockNames, *, limit: int | None, seed: int, repair: bool) -> _Read:
    """Read all requests and name their blocks; ids as they stand in the file live for one session only."""
    requests: list[TraceRequest] = []
    sessions: list[Hashable] = []
    session_start = 0
    with closing(trace.read(seed=seed, repair=repair, whole=limit is None)) as stream:
        for request in islice(stream, limit):
            # A row is a session where times count from its start; two files put together may repeat a name.
            session = trace.line if trace.format.session_clock else request.session
            if sessions and session != sessions[-1]:
                share_prefixes(requests[session_start:])
                session_start = len(requests)
            request.blocks = names.of(request)
            request.block_tokens = names.block_tokens
            requests.append(request)
            sessions.append(session)
    share_prefixes(requests[session_start:])
    if not requests:
        raise TraceError("holds no requests", source=trace.path)
    if trace.format.link is not None:
        trace.format.link(requests)
        sessions = [request.session for request in requests]
    return _Read(requests, sessions)


def _arrange(trace: Trace, read: _Read, *, users: int | None, spread_s: float | None, seed: int) -> _Timing:
    """Put requests in order of arrival, on one clock."""
    requests, sessions = read.requests, group_sessions(read.sessions)
    resolve_turns(requests, sessions)
    starts = estimate_starts(requests, sessions)
    if users is None and spread_s is None and not trace.format.session_clock:
        return _by_stamp(requests, starts)
    if sum(map(len, sessions)) < len(requests):
        alone = counted(read.sessions.count(None), "request is in none", "requests are in none")
        problem = f"users (--users) and spread_s (--spread) need sessions, but {alone}"
        raise TraceError(problem, source=trace.path)
    return _by_session(requests, starts, sessions, users=users, spread_s=spread_s, seed=seed)


def _by_stamp(requests: list[TraceRequest], starts: Starts) -> _Timing:
    """The trace's own clock, which begins at 0 or later; a trace without one keeps the order of its file."""
    if all(request.arrival_s is None for request in requests):
        return _Timing(requests, ["no arrival times: requests come in the order of the file"])
    # A file whose stamps count from an epoch is read from its first row on, which need not be the earliest.
    origin = min([0.0, *starts.seconds])
    seconds = [start - origin for start in starts.seconds]
    late = sum(later < earlier for earlier, later in pairwise(seconds))
    order = sorted(range(len(requests)), key=seconds.__getitem__)
    _set_arrivals(requests, seconds)
    warnings = [
        f"requests without a time, which arrive with the row before them: {starts.missing:,}"
        if starts.missing
        else None,
        f"rows earlier than the row before them, sorted by arrival: {late:,}" if late else None,
        unit_warning(seconds),
    ]
    return _Timing([requests[index] for index in order], [text for text in warnings if text])


def _by_session(
    requests: list[TraceRequest],
    starts: Starts,
    sessions: list[list[int]],
    *,
    users: int | None,
    spread_s: float | None,
    seed: int,
) -> _Timing:
    """Sessions start as asked; within each, times are as recorded."""
    warnings = []
    first = [min(starts.seconds[index] for index in members) for members in sessions]
    lengths = [
        max(starts.seconds[i] for i in members) - origin for members, origin in zip(sessions, first, strict=True)
    ]
    if spread_s is not None:
        offsets = spread_starts(len(sessions), span_s=spread_s, seed=seed)
    elif users is not None:
        offsets = user_starts(lengths, users=users, seed=seed)
    else:
        offsets = user_starts(lengths, users=1, seed=None)
        warnings.append(
            "sessions have no common clock: played one after another, unless users (--users) or spread_s (--spread) "
            "says otherwise"
        )
    seconds = list(starts.seconds)
    place: list[tuple[float, int]] = [(0.0, 0)] * len(requests)
    for session, members in enumerate(sessions):
        for index in members:
            seconds[index] = offsets[session] + (seconds[index] - first[session])
            place[index] = (seconds[index], session)
    _set_arrivals(requests, seconds)
    order = sorted(range(len(requests)), key=place.__getitem__)
    return _Timing([requests[index] for index in order], warnings)


def _set_arrivals(requests: Sequence[TraceRequest], seconds: Sequence[float]) -> None:
    """Note arrivals, except where only the end of another request says when this one starts."""
    for request, second in zip(requests, seconds, strict=True):
        if request.arrival_s is not None or request.after is None:
            request.arrival_s = second


def _block_warnings(trace: Trace, names: BlockNames, requests: Sequence[TraceRequest]) -> list[str]:
    warnings = [names.warning] if names.warning else []
    if trace.format.counts_bytes:
        warnings.append(
            "a token is one UTF-8 byte here; those of a usual tokenizer hold three to four, so divide sizes by that"
        )
    if trace.format.block_rule is BlockRule.NONE:
        warnings.append("lengths only: requests have no blocks, so nothing can be reused")
    elif trace.format.block_rule is BlockRule.TOKENS:
        unknown = sum(request.tokens is None for request in requests)
        if unknown:
            warnings.append(
                f"requests without tokens, hence without blocks, of which nothing can be reused: {unknown:,}"
            )
    return warnings
