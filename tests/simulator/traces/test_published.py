"""Real traces: the counts that their README publishes, computed there by other programs."""

from __future__ import annotations

import csv
import lzma
import os
from collections import Counter
from pathlib import Path

import pytest

from simulator.reuse import measure_reuse
from simulator.traces import LoadedTrace, load, open_trace

pytestmark = pytest.mark.traces


def real_trace(name: str) -> Path:
    folder = Path(os.environ.get("KVSTORE_TRACES") or Path(__file__).parents[3].parent / "shared" / "traces")
    path = folder / name
    if not path.exists():
        pytest.skip(f"no real trace at {path}")
    return path


def facts(trace: LoadedTrace) -> tuple[str, int, int, int, int]:
    """Format, requests, input tokens, block accesses, unique blocks."""
    requests = trace.requests
    accesses = sum(len(request.blocks) for request in requests)
    return trace.format, len(requests), sum(r.input_len for r in requests), accesses, trace.unique_blocks


@pytest.mark.parametrize(
    ("name", "expected", "span_s"),
    [
        ("mooncake_conversation_trace.jsonl.gz", ("mooncake", 12_031, 144_793_823, 288_500, 182_790), 3537),
        ("mooncake_synthetic_trace.jsonl.gz", ("mooncake", 3_993, 61_194_628, 121_877, 43_924), 1022),
        ("llmservingsim_sharegpt_llama31_300.jsonl.xz", ("llmservingsim", 300, 257_239, 15_942, 14_722), 29),
        ("lmcache_agent_miniswe.jsonl.xz", ("agent-text", 402, 9_674_724, 150_975, 9_493), 552),
        ("lmcache_agent_taubench.jsonl.xz", ("agent-text", 471, 312_134, 4_647, 621), 181),
        ("lmcache_agent_magagent_hashed.jsonl.gz", ("magagent", 746, 6_047_615, 94_148, 14_961), 6449),
        ("AzureLLMInferenceTrace_conv.csv.gz", ("azure", 19_366, 22_361_870, 0, 0), 3502),
        ("AzureLLMInferenceTrace_code.csv.gz", ("azure", 8_819, 18_059_974, 0, 0), 3436),
        ("vidur_arxiv_summarization_lengths.csv.gz", ("vidur", 28_257, 73_131_321, 0, 0), None),
    ],
)
def test_counts(name: str, expected: tuple[str, int, int, int, int], span_s: int | None) -> None:
    trace = load(open_trace(real_trace(name)))
    assert facts(trace) == expected
    stamps = [request.arrival_s for request in trace.requests if request.arrival_s is not None]
    assert stamps == sorted(stamps)
    assert (round(stamps[-1] - stamps[0]) if stamps else None) == span_s
    assert len({request.session for request in trace.requests}) in (1, 20, 24, 25)


def test_drawn_arrivals_keep_the_published_rates() -> None:
    path = real_trace("servegen_deepseek-r1_client_rates.csv.xz")
    with lzma.open(path, "rt") as file:
        first = [row for row in csv.DictReader(file) if row["timestamp"] == "0"]
    expected = {row["client_id"]: round(float(row["rate"]) * 600) for row in first if float(row["rate"])}
    trace = load(open_trace(path), limit=sum(expected.values()) + 1)
    assert trace.format == "servegen"
    assert Counter(r.tenant for r in trace.requests if r.arrival_s is not None and r.arrival_s < 600) == expected


@pytest.mark.parametrize(
    ("users", "hits_2048", "hits_8192"),
    [
        (64, 5_882_650, 10_907_287),
        pytest.param(16, 10_808_541, 11_314_068, marks=pytest.mark.slow),
        pytest.param(256, 1_674_038, 5_264_780, marks=pytest.mark.slow),
    ],
)
def test_merged_sessions_hit_what_was_published(users: int, hits_2048: int, hits_8192: int) -> None:
    """One wrong start, tie or id anywhere among 49,334 requests would change these numbers."""
    trace = load(open_trace(real_trace("claude_code_weka.jsonl.xz")), block_tokens=512, users=users)
    assert facts(trace) == ("weka", 49_334, 6_037_445_403, 11_767_283, 431_071)
    assert trace.warnings == ()
    reuse = measure_reuse(trace.requests)
    assert (reuse.hits_at(2048), reuse.hits_at(8192)) == (hits_2048, hits_8192)


@pytest.mark.slow
def test_all_ids_of_the_largest_trace() -> None:
    trace = load(open_trace(real_trace("claude_code_weka.jsonl.xz")))
    assert facts(trace) == ("weka", 49_334, 6_037_445_403, 94_310_647, 3_450_959)
