"""The JSON of a result: its keys, its bytes, and the way back."""

from __future__ import annotations

import dataclasses
import json

import pytest

from simulator.errors import SimulatorError
from simulator.result import (
    HIT_DEFINITION,
    BytesMoved,
    Ceiling,
    HitRule,
    ReplayResult,
    ResultError,
    TierResult,
    results_to_json,
)

GOLDEN = """\
{
  "schema": 1,
  "version": "0.1.0",
  "trace": "conversation_trace.jsonl.gz",
  "trace_digest": "ab12",
  "seed": 7,
  "options": {
    "device_tokens": "4M",
    "limit": null
  },
  "warnings": [
    "3 rows were “repaired”"
  ],
  "requests": 12031,
  "input_tokens": 144793823,
  "block_tokens": 512,
  "unique_blocks": 182790,
  "policy": "lru",
  "hit_rule": "trace",
  "block_accesses": 288500,
  "hit_blocks": 52381,
  "block_hit_rate": 0.181563,
  "hit_tokens": 26803109,
  "token_hit_rate": 0.185112,
  "computed_tokens": 117990714,
  "ceiling": {
    "hit_blocks": 105710,
    "hit_tokens": 54095456
  },
  "tiers": {
    "device": {
      "capacity_tokens": 4194304,
      "hit_tokens": 26803109,
      "hit_blocks": 52381,
      "evicted_blocks": 227927
    },
    "host": {},
    "cold": {}
  },
  "bytes_moved": {
    "device_to_host": 0,
    "host_to_device": 0,
    "host_to_cold": 0,
    "cold_to_host": 0
  },
  "latency": null,
  "wall_seconds": 0.873,
  "requests_per_second": 13782.4
}
"""

RESULT = ReplayResult(
    version="0.1.0",
    trace="conversation_trace.jsonl.gz",
    trace_digest="ab12",
    seed=7,
    options={"device_tokens": "4M", "limit": None},
    warnings=("3 rows were “repaired”",),
    requests=12_031,
    input_tokens=144_793_823,
    block_tokens=512,
    unique_blocks=182_790,
    policy="lru",
    hit_rule=HitRule.TRACE,
    block_accesses=288_500,
    hit_blocks=52_381,
    hit_tokens=26_803_109,
    ceiling=Ceiling(hit_blocks=105_710, hit_tokens=54_095_456),
    device=TierResult(capacity_tokens=4_194_304, hit_tokens=26_803_109, hit_blocks=52_381, evicted_blocks=227_927),
    bytes_moved=BytesMoved(),
    wall_seconds=0.873,
    requests_per_second=13_782.4,
)


def test_json_is_the_documented_form_to_the_byte() -> None:
    assert RESULT.to_json() == GOLDEN


def test_json_reads_back_to_an_equal_result() -> None:
    assert ReplayResult.from_json(GOLDEN) == RESULT


def test_rates_follow_from_the_counts() -> None:
    assert RESULT.block_hit_rate == 52_381 / 288_500
    assert RESULT.token_hit_rate == 26_803_109 / 144_793_823
    assert RESULT.hit_tokens + RESULT.computed_tokens == RESULT.input_tokens


def test_a_run_without_accesses_has_rates_of_zero_and_valid_json() -> None:
    empty = dataclasses.replace(RESULT, requests=0, input_tokens=0, block_accesses=0, hit_blocks=0, hit_tokens=0)
    record = json.loads(empty.to_json())
    assert (record["block_hit_rate"], record["token_hit_rate"], record["computed_tokens"]) == (0, 0, 0)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "not the JSON"),
        ("[]", "not the JSON"),
        ("{}", "schema"),
        ('{"schema": 2}', "schema 2"),
        (GOLDEN.replace('"policy": "lru",', ""), "policy"),
        (GOLDEN.replace('"policy":', '"polcy":'), "polcy"),
        (GOLDEN.replace('"trace",', '"exact",'), "exact"),
        (GOLDEN.replace('"tiers": {', '"tiers": {}, "x": {'), "device"),
    ],
)
def test_another_text_is_refused(text: str, word: str) -> None:
    with pytest.raises(ResultError, match=word) as caught:
        ReplayResult.from_json(text)
    assert isinstance(caught.value, SimulatorError)


def test_one_run_is_an_object_and_several_are_a_list_in_order() -> None:
    other = dataclasses.replace(RESULT, policy="optimal")
    assert results_to_json([RESULT]) == RESULT.to_json()
    both = json.loads(results_to_json([RESULT, other]))
    assert both == {"schema": 1, "runs": [json.loads(RESULT.to_json()), json.loads(other.to_json())]}


def test_the_definition_names_every_rule_that_changes_a_number() -> None:
    for word in (*(rule.value for rule in HitRule), "count", "drop", "cold", "leading", "prompt's length"):
        assert word in HIT_DEFINITION
