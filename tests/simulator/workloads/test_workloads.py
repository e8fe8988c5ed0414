"""The built-in workloads: how a text selects one, and what holds for all of them."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from simulator.errors import TraceError
from simulator.traces.record import LoadedTrace
from simulator.workloads import WorkloadError, workload, workloads

NAMES = [summary.name for summary in workloads()]

#: SHA-256 of ``requests=500&seed=7``: a change here changes every published figure of the workload. Bump nothing
#: silently; say in the changelog that the workload is another one now.
DIGESTS = {
    "agent": "21138b738e67910ddee128af7106a5e22a34c10f77c3c0a45f6efeca93f58bce",
    "bursts": "1f145af2a99ffd9da8449dfddbf12fd6323023481a13868d5f82eeca3ff9fe10",
    "chat": "f9902c6f7ade9f194a8976d0dcad73712e254f1e9e67d109d11d80789ce2b118",
    "rag": "7c42c4bd788e77724fa0defdf37b731d3b3f232ba7f094c15b9f392cfad5221d",
    "scan": "116585eaeb6e45b77458dc839faf4575b3aea1d02d9421518d859c5aa9db5850",
    "system": "ec6e3137a7a85c05cdeaa68cf6a5a5aded5fb422abd0389c6d2f9cd8d25f9ad6",
}


def column(trace: LoadedTrace, name: str) -> list:
    return [getattr(request, name) for request in trace.requests]


def test_six_workloads_are_listed_with_their_parameters() -> None:
    assert NAMES == ["agent", "bursts", "chat", "rag", "scan", "system"]
    for summary in workloads():
        assert summary.description
        parameters = {item.name: item for item in summary.parameters}
        assert {"seed", "requests", "block_tokens"} <= set(parameters)
        for item in parameters.values():
            assert item.meaning
            assert item.low <= item.default <= item.high


@pytest.mark.parametrize("name", NAMES)
def test_a_default_workload_has_the_size_that_is_listed_and_is_quickly_made(name: str) -> None:
    begun = time.perf_counter()
    trace = workload(f"workload:{name}")
    assert time.perf_counter() - begun < 5  # 0.1 to 0.4 s when nothing else runs
    summary = next(summary for summary in workloads() if summary.name == name)
    size = next(item.default for item in summary.parameters if item.name == "requests")
    assert len(trace.requests) == size
    assert 3_000 <= size <= 12_000


@pytest.mark.parametrize("name", NAMES)
def test_equal_seeds_make_equal_traces_on_every_machine(name: str) -> None:
    text = f"workload:{name}?requests=500&seed=7"
    trace = workload(text)
    assert trace.digest == DIGESTS[name]
    assert (trace.name, trace.format) == (text, "workload")
    again = workload(f"workload:{name}?seed=7&requests=500")
    assert again.digest == trace.digest
    for field in ("arrival_s", "after", "input_len", "output_len", "session", "turn"):
        assert column(again, field) == column(trace, field)
    assert all(np.array_equal(*pair) for pair in zip(column(trace, "blocks"), column(again, "blocks"), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_another_seed_or_parameter_makes_another_trace(name: str) -> None:
    texts = [f"workload:{name}?requests=50{more}" for more in ("", "&seed=1", "&seed=2", "&block_tokens=7")]
    digests = {workload(text).digest for text in texts}
    assert len(digests) == len(texts)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("requests", [1, 2, 40, 700])
@pytest.mark.parametrize("block_tokens", [16, 512, 5_000])
def test_traces_keep_the_promises_of_a_loaded_trace(name: str, requests: int, block_tokens: int) -> None:
    trace = workload(f"workload:{name}?requests={requests}&block_tokens={block_tokens}&seed=3")
    assert len(trace.requests) == requests
    arrivals = column(trace, "arrival_s")
    assert arrivals == sorted(arrivals)
    assert arrivals[0] >= 0
    unseen = -2
    parents = np.full(trace.unique_blocks, unseen)
    seen = 0
    for request in trace.requests:
        assert request.block_tokens == trace.block_tokens == block_tokens
        assert request.input_len >= 1
        assert request.output_len >= 0
        blocks = request.blocks
        assert blocks.dtype == np.int32
        assert len(blocks) == request.input_len // block_tokens
        before = np.concatenate([[-1], blocks[:-1]])[: len(blocks)]
        known = parents[blocks] != unseen
        assert (parents[blocks][known] == before[known]).all()  # one predecessor, hence one position
        fresh = blocks[~known]
        assert (fresh == np.arange(seen, seen + len(fresh))).all()  # numbered by first sight
        parents[blocks] = before
        seen += len(fresh)
    assert trace.unique_blocks == seen


@pytest.mark.parametrize("name", NAMES)
def test_turns_of_a_session_follow_one_another(name: str) -> None:
    sessions: dict[object, list] = {}
    for request in workload(f"workload:{name}?requests=3000").requests:
        if request.session is None:
            assert request.turn is None
        else:
            sessions.setdefault(request.session, []).append(request)
    for requests in sessions.values():
        assert [request.turn for request in requests] == list(range(len(requests)))
        for earlier, later in itertools.pairwise(requests):
            assert later.after is None or later.after.request == earlier.turn
            assert later.after is None or later.arrival_s >= earlier.arrival_s + later.after.think_s


def test_only_agents_wait_for_the_request_before() -> None:
    for name in NAMES:
        waits = any(request.after for request in workload(f"workload:{name}?requests=500").requests)
        assert waits == (name == "agent")


@pytest.mark.parametrize("name", NAMES)
def test_every_bound_of_every_parameter_works(name: str) -> None:
    """Alone and with few requests: the least and greatest value of each parameter makes a trace."""
    summary = next(summary for summary in workloads() if summary.name == name)
    for item in summary.parameters:
        if item.name in {"requests", "block_tokens"}:
            continue
        for bound in (item.low, item.high):
            value = int(bound) if isinstance(item.default, int) else bound
            trace = workload(f"workload:{name}?requests=20&block_tokens=512&{item.name}={value}")
            assert len(trace.requests) == 20


@pytest.mark.parametrize(
    ("text", "field", "says"),
    [
        ("chat", None, "workload:NAME"),
        ("workload:chet", None, "did you mean 'chat'"),
        ("workload:", None, "known are agent, bursts, chat, rag, scan, system"),
        ("workload:chat?sed=1", "sed", "did you mean 'seed'"),
        ("workload:chat?zzz=1", "zzz", "known are .*system_tokens"),
        ("workload:chat?seed", None, "param=value"),
        ("workload:chat?seed=1&", None, "param=value"),
        ("workload:chat?seed=1&seed=2", "seed", "given twice"),
        ("workload:chat?seed=1.5", "seed", "a whole number, got '1.5'"),
        ("workload:chat?rate=fast", "rate", "a number, got 'fast'"),
        ("workload:chat?rate=nan", "rate", "a number"),
        ("workload:chat?rate=inf", "rate", "a number"),
        ("workload:chat?requests=0", "requests", r"\[1, 1e\+07\], got 0"),
        ("workload:system?skew=-1", "skew", "must lie in"),
        ("workload:chat?seed=", "seed", "a whole number, got ''"),
    ],
)
def test_what_cannot_be_made_is_refused_by_name(text: str, field: str | None, says: str) -> None:
    with pytest.raises(WorkloadError, match=says) as caught:
        workload(text)
    assert caught.value.field == field
    assert caught.value.source in {text, text.partition("?")[0]}
    assert isinstance(caught.value, TraceError)
