"""Claude Code sessions of kv-cache-tester (WEKA): one session a row, ids local to it, sub-agents, measured times.

Times are seconds from the session's start. A sub-agent entry holds requests of its own: their ``t`` counts from the
entry's ``t``, their ids share the session's. ``think_time`` is the client's pause before a request, ``api_time`` the
server's whole answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from simulator.traces.formats.format import BlockRule, ReadContext, TraceFormat, hashed_prompt
from simulator.traces.record import After, TraceRequest
from simulator.traces.rows import Row

__all__ = ["WEKA"]

_SESSION_KNOWN: Final = ("id", "requests", "block_size", "hash_id_scope")
_KNOWN: Final = ("t", "model", "in", "out", "hash_ids", "think_time", "api_time", "ttft")


@dataclass(slots=True)
class _Call:
    """One request within its session, before the session is in order."""

    row: Row
    start_s: float
    before: _Call | None  #: the call whose end this one waited for
    agent: Mapping[str, object] | None  #: the sub-agent's own facts
    turn: int = 0


def _recognises(row: Mapping[str, object]) -> bool:
    return {"requests", "hash_id_scope"} <= row.keys() or {"id", "requests", "block_size"} <= row.keys()


def _read(rows: Iterator[Row], context: ReadContext) -> Iterator[TraceRequest]:
    for row in rows:
        yield from _session(row, context)


def _session(row: Row, context: ReadContext) -> Iterator[TraceRequest]:
    session = row.line if (label := row.label("id")) is None else label
    if row.count_or("block_size", context.block_tokens) != context.block_tokens:
        raise row.error("block_size", f"must stay {context.block_tokens} through the file")
    if row.has("hash_id_scope") and row.text("hash_id_scope") != "local":
        raise row.error("hash_id_scope", f"only 'local' is known, got {row.text('hash_id_scope')!r}")
    calls = _calls(row.inner_rows("requests"))
    # Sub-agents run beside the main line; ties keep the order of the file.
    calls.sort(key=lambda call: call.start_s)
    for turn, call in enumerate(calls):
        call.turn = turn
    facts = row.rest(*_SESSION_KNOWN)  # one mapping for all requests of the session
    for call in calls:
        yield _request(call, session, facts, context)


def _calls(entries: list[Row]) -> list[_Call]:
    """All requests of a session, those of sub-agents where their entry stands."""
    calls: list[_Call] = []
    main: _Call | None = None
    for entry in entries:
        start_s = entry.number("t")
        if entry.text("type") != "subagent":
            main = _Call(entry, start_s, main, None)
            calls.append(main)
            continue
        facts, before = entry.rest("requests", "t", "type"), main
        for inner in entry.inner_rows("requests"):
            before = _Call(inner, start_s + inner.number("t"), before, facts)
            calls.append(before)
    return calls


def _request(call: _Call, session: int | str, facts: Mapping[str, object], context: ReadContext) -> TraceRequest:
    row = call.row
    prompt = hashed_prompt(row, context, BlockRule.FLOOR, length="in")
    measured = {
        name: row.number(field) for name, field in (("e2e_s", "api_time"), ("ttft_s", "ttft")) if row.has(field)
    }
    extra = row.rest(*_KNOWN)
    extra["session"] = facts
    if call.agent is not None:
        extra["agent"] = call.agent
    return TraceRequest(
        input_len=prompt.input_len,
        output_len=row.count("out"),
        block_tokens=context.block_tokens,
        blocks=prompt.ids,
        arrival_s=call.start_s,
        after=None if call.before is None else After(request=call.before.turn, think_s=_think_s(call, call.before)),
        session=session,
        turn=call.turn,
        model=row.text_or_none("model"),
        measured=measured,
        extra=extra,
    )


def _think_s(call: _Call, before: _Call) -> float:
    """The recorded pause; for a sub-agent's first request, which has none, what the clock says.

    A sub-agent's own times start at 0, so its first ``think_time`` says nothing about the call that began it.
    """
    if call.row.has("think_time") and call.agent is before.agent:
        return call.row.number("think_time")
    answer_s = before.row.number("api_time") if before.row.has("api_time") else 0.0
    return max(0.0, call.start_s - before.start_s - answer_s)


WEKA: Final = TraceFormat(
    name="weka",
    summary="coding-agent sessions with sub-agents and measured times (WEKA kv-cache-tester)",
    time_unit="s, per session",
    block_rule=BlockRule.FLOOR,
    block_tokens=64,
    recognises=_recognises,
    read=_read,
    session_clock=True,
    local_ids=True,
)
