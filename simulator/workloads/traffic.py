"""Requests as columns, and the trace that they become.

A path is a few *pieces*: a piece is a range of block ids that one part of a prompt (a shared head, a document, a
session's own text) gave to its blocks. Ids stand for full blocks only, as an engine shares them, and a block that two
parts meet in belongs to the later one: the blocks of a part that ends at token ``end`` are those up to
``end // block_tokens``.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from simulator.traces.record import After, LoadedTrace, TraceRequest

__all__ = ["NO_SESSION", "NO_WAIT", "Ints", "Traffic", "first_ids", "scaled", "to_trace"]

Ints = NDArray[np.int64]

#: In ``Traffic.session``: a single call.
NO_SESSION = -1
#: In ``Traffic.think_us``: the request comes by the clock.
NO_WAIT = -1


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Traffic:
    """Requests in any order.

    Shapes:
        arrival_us, think_us, input_len, output_len, session, turn: [requests] int64
        first, count: [requests, pieces] int64; a piece of a path is the ids ``[first, first + count)``
    """

    arrival_us: Ints
    think_us: Ints  #: since the end of the session's request before, or ``NO_WAIT``
    input_len: Ints  #: tokens, at least 1
    output_len: Ints  #: tokens
    session: Ints  #: ``NO_SESSION`` where there is none
    turn: Ints  #: from 0 within the session
    first: Ints
    count: Ints  #: 0 where a request has fewer pieces

    def earliest(self, count: int) -> Traffic:
        """The ``count`` requests that arrive first, in order of arrival; ties keep their order."""
        chosen = np.argsort(self.arrival_us, kind="stable")[:count]
        return Traffic(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    def beside(self, other: Traffic) -> Traffic:
        """Both, in ids and sessions of their own; both have the same number of pieces."""
        id_end = int((self.first + self.count).max(initial=0))
        session_end = int(self.session.max(initial=NO_SESSION)) + 1
        moved = replace(
            other,
            first=other.first + id_end,
            session=np.where(other.session == NO_SESSION, NO_SESSION, other.session + session_end),
        )
        return Traffic(
            **{
                field.name: np.concatenate([getattr(self, field.name), getattr(moved, field.name)])
                for field in fields(self)
            }
        )


def first_ids(counts: Ints, start: int) -> Ints:
    """Where ranges of these many ids begin, one after the other from ``start``; same shape as ``counts``."""
    ends = np.cumsum(counts)
    return start + ends - counts


def scaled(values: Ints, factor: float | NDArray[np.float64]) -> Ints:
    """Values below 2^53 times a factor, rounded down: one product each, which every machine rounds alike."""
    products: Ints = np.floor(values * factor).astype(np.int64)
    return products


def to_trace(traffic: Traffic, *, name: str, block_tokens: int, seed: int) -> LoadedTrace:
    """Order requests by arrival, number their blocks by first sight, and seal them with a digest."""
    ordered = traffic.earliest(len(traffic.arrival_us))
    blocks = _by_first_sight(_expand(ordered.first.ravel(), ordered.count.ravel()))
    return LoadedTrace(
        name=name,
        digest=_digest(ordered, blocks, block_tokens),
        format="workload",
        block_tokens=block_tokens,
        requests=_requests(ordered, blocks, block_tokens),
        unique_blocks=int(blocks.max(initial=-1)) + 1,
        seed=seed,
    )


def _digest(traffic: Traffic, blocks: NDArray[np.int32], block_tokens: int) -> str:
    digest = hashlib.sha256(f"kvsim workload 1, blocks of {block_tokens} tokens\n".encode())
    path_blocks = traffic.count.sum(axis=1)
    for column in (*_scalars(traffic), path_blocks):
        digest.update(column.astype("<i8").tobytes())
    digest.update(blocks.astype("<i4").tobytes())
    return digest.hexdigest()


def _requests(traffic: Traffic, blocks: NDArray[np.int32], block_tokens: int) -> list[TraceRequest]:
    ends = np.cumsum(traffic.count.sum(axis=1)).tolist()
    requests = []
    begin = 0
    for row, end in zip(zip(*(column.tolist() for column in _scalars(traffic)), strict=True), ends, strict=True):
        arrival_us, think_us, input_len, output_len, session, turn = row
        single = session == NO_SESSION
        requests.append(
            TraceRequest(
                input_len=input_len,
                output_len=output_len,
                block_tokens=block_tokens,
                blocks=blocks[begin:end],
                arrival_s=arrival_us / 1_000_000,
                after=None if think_us == NO_WAIT else After(request=turn - 1, think_s=think_us / 1_000_000),
                session=None if single else session,
                turn=None if single else turn,
            )
        )
        begin = end
    return requests


def _scalars(traffic: Traffic) -> tuple[Ints, ...]:
    """The columns with one number per request."""
    return (
        traffic.arrival_us,
        traffic.think_us,
        traffic.input_len,
        traffic.output_len,
        traffic.session,
        traffic.turn,
    )


def _expand(first: Ints, count: Ints) -> Ints:
    """The ids of all pieces, one after the other."""
    return np.repeat(first - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))


def _by_first_sight(ids: Ints) -> NDArray[np.int32]:
    """Rename ids to 0, 1, 2 … in the order in which they first occur."""
    first_place = np.full(int(ids.max(initial=-1)) + 1, -1, np.int64)
    first_place[ids[::-1]] = np.arange(len(ids))[::-1]  # of equal ids the last assignment stays: the first place
    seen = np.flatnonzero(first_place >= 0)
    names = np.full(len(first_place), -1, np.int32)
    names[seen[np.argsort(first_place[seen])]] = np.arange(len(seen), dtype=np.int32)
    return names[ids]
