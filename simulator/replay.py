"""Requests of a trace, one after another in order of arrival, through the real store: what would it have hit?

Nothing takes time here: a request ends before the next one begins, and the clock shows its arrival. Pages have no
bytes. The store is bounded by what stays cached (``retained_page_count_max``); its pool has room for the longest
request besides, so no request is ever refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from eviction import EvictionPolicy, OptimalPolicy, UnknownPolicyError, make_policy, policy_names
from kvstore import BlockFormat, ConfigError, KVStore, Namespace, Prompt
from kvstore._version import __version__
from simulator.errors import TraceError
from simulator.future import Future
from simulator.result import BytesMoved, Ceiling, HitRule, OptionValue, ReplayResult, TierResult
from simulator.reuse import Reuse, measure_reuse
from simulator.sizes import Size
from simulator.traces.record import LoadedTrace
from transfer import VirtualPagePool

__all__ = ["ReplayOptions", "check_policy", "replay", "replay_policies"]

_SYMBOL_BYTES: Final = 4  # the dense int32 ids of a loaded trace are its block names
_PROGRESS_STEP: Final = 256  # requests between two calls of ``progress``


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """How to replay a trace."""

    device_tokens: Size
    policy: str = "lru"
    hit_rule: HitRule = HitRule.TRACE
    reading: Mapping[str, OptionValue] = field(
        default_factory=dict
    )  #: how the trace was read; only passed on to the result


def replay_policies() -> tuple[str, ...]:
    """The names that a replay takes: every policy, and the offline optimum."""
    return tuple(sorted((*policy_names(), OptimalPolicy.name)))


def check_policy(name: str) -> None:
    """Refuse a name before any work is done.

    Raises:
        UnknownPolicyError: no policy of this name; says which is nearest.
    """
    known = replay_policies()
    if name not in known:
        raise UnknownPolicyError(name, known=known)


def replay(
    trace: LoadedTrace,
    options: ReplayOptions,
    *,
    reuse: Reuse | None = None,
    progress: Callable[[int], None] | None = None,
    stopwatch_s: Callable[[], float] = time.perf_counter,
) -> ReplayResult:
    """Run a trace through a cold store.

    Args:
        reuse: of this trace under the same hit rule, if it has been measured already.
        progress: called now and then with the number of requests done.
        stopwatch_s: seconds of wall time, for the speed in the result and nothing else.

    Raises:
        TraceError: the trace has lengths only, so nothing can be matched, or blocks larger than the store's.
        SizeError: the device tier does not hold one block.
        UnknownPolicyError: no policy of this name.
        AssertionError: the store's audit found a broken invariant, which is a bug in the store.
    """
    check_policy(options.policy)
    if not trace.unique_blocks:
        raise TraceError(
            "has lengths only, no prefix identity: there is nothing to match; try kvsim describe", source=trace.name
        )
    reuse = reuse or measure_reuse(trace.requests, hit_rule=options.hit_rule)
    assert reuse.hit_rule is options.hit_rule
    capacity = options.device_tokens.blocks(block_tokens=trace.block_tokens, unique_blocks=trace.unique_blocks)
    clock = _ArrivalClock()
    namespace = _make_namespace(trace)
    store = _make_store(trace, capacity, namespace, _make_policy(options.policy, trace), clock)
    started_s = stopwatch_s()
    found = _run(store, trace, clock, options.hit_rule, progress)
    wall_seconds = stopwatch_s() - started_s
    store.audit()
    device = _tally(store, trace, found, capacity)
    return ReplayResult(
        version=__version__,
        trace=trace.name,
        trace_digest=trace.digest,
        seed=trace.seed,
        options={
            **options.reading,
            "device_tokens": options.device_tokens.text,
            "policy": options.policy,
            "hit_rule": options.hit_rule.value,
        },
        warnings=trace.warnings,
        requests=len(trace.requests),
        input_tokens=reuse.input_tokens,
        block_tokens=trace.block_tokens,
        unique_blocks=trace.unique_blocks,
        policy=options.policy,
        hit_rule=options.hit_rule,
        block_accesses=reuse.block_accesses,
        hit_blocks=device.hit_blocks,
        hit_tokens=device.hit_tokens,
        ceiling=Ceiling(hit_blocks=reuse.hit_blocks, hit_tokens=reuse.hit_tokens),
        device=device,
        bytes_moved=BytesMoved(),
        wall_seconds=wall_seconds,
        requests_per_second=len(trace.requests) / wall_seconds if wall_seconds > 0 else 0.0,
    )


@final
class _ArrivalClock:
    """The store's clock: stands at the arrival of the running request."""

    __slots__ = ("now_ns",)

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def _make_policy(name: str, trace: LoadedTrace) -> EvictionPolicy[Any]:
    """A policy whose keys are the store's own, hence Any."""
    return OptimalPolicy(Future(trace.requests)) if name == OptimalPolicy.name else make_policy(name)


def _make_namespace(trace: LoadedTrace) -> Namespace:
    try:
        symbols = BlockFormat.of_names(symbol_bytes=_SYMBOL_BYTES, block_tokens=trace.block_tokens)
        return Namespace(model="replay", format=symbols)
    except ConfigError as error:
        raise TraceError(str(error), source=trace.name) from error


def _make_store(
    trace: LoadedTrace, capacity: int, namespace: Namespace, policy: EvictionPolicy[Any], clock: _ArrivalClock
) -> KVStore:
    # No more than the unique blocks is ever cached, so a larger pool would only cost memory.
    retained = min(capacity, trace.unique_blocks)
    longest = max(len(request.blocks) for request in trace.requests)
    pool = VirtualPagePool(page_count=retained + longest, block_tokens=trace.block_tokens)
    return KVStore(pool, policy=policy, namespace=namespace, retained_page_count_max=retained, now_ns=clock)


def _run(
    store: KVStore,
    trace: LoadedTrace,
    clock: _ArrivalClock,
    hit_rule: HitRule,
    progress: Callable[[int], None] | None,
) -> NDArray[np.int64]:
    """The hot loop.

    Returns:
        [requests] tokens that each request found, in whole blocks.
    """
    block_tokens = trace.block_tokens
    serving = hit_rule is HitRule.SERVING
    found = np.zeros(len(trace.requests), np.int64)
    begin, prompt_of_names = store.begin, Prompt.of_names
    for ordinal, request in enumerate(trace.requests):
        if progress is not None and not ordinal % _PROGRESS_STEP:
            progress(ordinal)
        blocks = request.blocks
        through = len(blocks) * block_tokens
        if not through:
            continue
        if request.arrival_s is not None:
            clock.now_ns = max(clock.now_ns, int(request.arrival_s * 1e9))  # a clock never steps back
        # A started last block counts as a whole one; tokens beyond the named blocks are at most part of the next.
        token_count = min(max(request.input_len, through), through + block_tokens - 1)
        prompt = prompt_of_names(blocks, token_count=token_count)
        sequence = begin(prompt, request_id=ordinal)
        found[ordinal] = sequence.cached_tokens if serving else sequence.matched_tokens
        sequence.reserve(through=through)
        sequence.commit(through=through)
        sequence.release()
    if progress is not None:
        progress(len(trace.requests))
    return found


def _tally(store: KVStore, trace: LoadedTrace, found: NDArray[np.int64], capacity: int) -> TierResult:
    """Count the hits; a started last block has only the tokens that the prompt has."""
    input_len = np.fromiter((request.input_len for request in trace.requests), np.int64, len(trace.requests))
    return TierResult(
        capacity_tokens=capacity * trace.block_tokens,
        hit_tokens=int(np.minimum(found, input_len).sum()),
        hit_blocks=int(found.sum()) // trace.block_tokens,
        evicted_blocks=sum(store.stats().evicted_blocks.values()),
    )
