"""Every format: what a row becomes, and each field missing, of the wrong kind or impossible."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from simulator.errors import TraceError
from simulator.traces import After, TraceRequest, formats, load, open_trace


@dataclass
class Sample:
    """Two rows of one format, and which of their fields must be what."""

    rows: list[dict[str, object]]
    counts: list[str] = field(default_factory=list)  #: required whole numbers
    numbers: list[str] = field(default_factory=list)  #: optional numbers of at least 0
    csv: bool = False


SAMPLES = {
    "mooncake": Sample(
        [
            {"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [7, 8]},
            {"timestamp": 27482, "input_length": 1025, "output_length": 6, "hash_ids": [7, 9, 3], "why": "x"},
        ],
        ["input_length"],
        ["timestamp"],
    ),
    "mooncake-sessions": Sample(
        [
            {"session_id": "s7", "timestamp": 3000, "input_length": 512, "output_length": 120, "hash_ids": [4]},
            {"session_id": "s7", "delay": 1500, "input_length": 1024, "output_length": 120, "hash_ids": [4, 5]},
        ],
        ["input_length"],
        ["timestamp", "delay"],
    ),
    "bailian": Sample(
        [
            {
                "chat_id": 159,
                "parent_chat_id": -1,
                "timestamp": 61.114,
                "input_length": 33,
                "output_length": 132,
                "type": "text",
                "turn": 1,
                "hash_ids": [1, 2, 3],
            },
            {
                "chat_id": 160,
                "parent_chat_id": 159,
                "timestamp": 70.5,
                "input_length": 48,
                "output_length": 1,
                "type": "text",
                "turn": 2,
                "hash_ids": [1, 2, 4],
            },
        ],
        ["input_length"],
        ["timestamp"],
    ),
    "kvcache-simulator": Sample(
        [
            {"block_size": 64, "hash_ids": [2001, 2002], "input_length": 128, "block_tokens": [64, 64]},
            {"block_size": 64, "hash_ids": [2001, 2**63 + 5], "input_length": 100, "block_tokens": [64, 36], "user": 3},
        ],
        ["input_length"],
    ),
    "llmservingsim": Sample(
        [
            {
                "input_toks": 3,
                "output_toks": 2,
                "arrival_time_ns": 0,
                "input_tok_ids": [1, 2, 3],
                "output_tok_ids": [8, 9],
            },
            {"input_toks": 4, "output_toks": 1, "arrival_time_ns": 1_500_000_000, "input_tok_ids": [1, 2, 3, 4]},
        ],
        ["input_toks", "output_toks"],
        ["arrival_time_ns"],
    ),
    "magagent": Sample(
        [
            {
                "timestamp": 1760995376615875,
                "session_id": "6a",
                "input_length": 130,
                "output_length": 7,
                "hash_ids": [0, 1],
            },
            {"timestamp": 1760995377615875, "session_id": "6a", "input_length": 63, "output_length": 7, "hash_ids": []},
        ],
        ["input_length", "output_length"],
    ),
    "agent-text": Sample(
        [
            {"timestamp": 1760587752017385, "input": "Grüße", "output": "ok", "session_id": "09"},
            {"timestamp": 1760587752517385, "input": "", "output": "", "session_id": "09"},
        ],
    ),
    "openai-chat": Sample(
        [
            {
                "model": "m",
                "user": "u1",
                "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo!"}],
                "temperature": 0,
            },
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "max_tokens": 9},
        ],
    ),
    "sharegpt": Sample(
        [
            {
                "id": "c0",
                "conversations": [
                    {"from": "human", "value": "a"},
                    {"from": "gpt", "value": "bb"},
                    {"from": "human", "value": "c"},
                    {"from": "gpt", "value": "d"},
                ],
            },
            {"id": "c1", "conversations": [{"from": "gpt", "value": "hello"}, {"from": "human", "value": "?"}]},
        ],
    ),
    "azure": Sample(
        [
            {"TIMESTAMP": "2023-11-16 18:17:03.9799600", "ContextTokens": "4808", "GeneratedTokens": "10"},
            {"TIMESTAMP": "2023-11-16 18:17:04.0319601", "ContextTokens": "3180", "GeneratedTokens": "8"},
        ],
        ["ContextTokens", "GeneratedTokens"],
        csv=True,
    ),
    "burstgpt": Sample(
        [
            {
                "Timestamp": "5",
                "Model": "ChatGPT",
                "Request tokens": "472",
                "Response tokens": "18",
                "Total tokens": "490",
                "Log Type": "Conversation log",
            },
            {
                "Timestamp": "45.5",
                "Model": "GPT-4",
                "Request tokens": "1087",
                "Response tokens": "230",
                "Total tokens": "1317",
                "Log Type": "API log",
            },
        ],
        ["Request tokens", "Response tokens"],
        ["Timestamp"],
        csv=True,
    ),
    "splitwise": Sample(
        [
            {
                "request_id": "0",
                "request_type": "2",
                "application_id": "0",
                "arrival_timestamp": "0.5",
                "batch_size": "1",
                "prompt_size": "374",
                "token_size": "44",
            },
            {
                "request_id": "1",
                "request_type": "2",
                "application_id": "0",
                "arrival_timestamp": "1e1",
                "batch_size": "1",
                "prompt_size": "0",
                "token_size": "1",
            },
        ],
        ["prompt_size", "token_size"],
        ["arrival_timestamp"],
        csv=True,
    ),
    "vidur": Sample(
        [
            {"arrived_at": "0.25", "num_prefill_tokens": "3772", "num_decode_tokens": "54"},
            {"arrived_at": "2", "num_prefill_tokens": "2015", "num_decode_tokens": "156"},
        ],
        ["num_prefill_tokens", "num_decode_tokens"],
        ["arrived_at"],
        csv=True,
    ),
    "servegen": Sample(
        [
            {
                "client_id": "0",
                "timestamp": "0",
                "rate": "0.01",
                "cv": "8.6",
                "dist": "Weibull",
                "param1": "0.4",
                "param2": "0.4",
            },
            {"client_id": "1", "timestamp": "600", "rate": "0", "cv": "0", "dist": "", "param1": "0", "param2": "0"},
        ],
        csv=True,
    ),
    "weka": Sample(
        [
            {
                "id": "trace_0001",
                "models": ["opus"],
                "block_size": 64,
                "hash_id_scope": "local",
                "tool_tokens": 11899,
                "requests": [
                    {"t": 0.0, "type": "n", "model": "opus", "in": 130, "out": 5, "hash_ids": [1, 2], "api_time": 4.0},
                    {
                        "t": 6.0,
                        "type": "subagent",
                        "agent_id": "a1",
                        "requests": [
                            {
                                "t": 0.0,
                                "type": "n",
                                "in": 64,
                                "out": 2,
                                "hash_ids": [9],
                                "api_time": 1.0,
                                "think_time": 0.0,
                            },
                            {"t": 9.0, "type": "n", "in": 128, "out": 2, "hash_ids": [9, 10], "think_time": 8.0},
                        ],
                    },
                    {
                        "t": 12.5,
                        "type": "s",
                        "model": "opus",
                        "in": 200,
                        "out": 6,
                        "hash_ids": [1, 2, 3],
                        "think_time": 8.5,
                        "ttft": 0.5,
                        "stop": "end_turn",
                    },
                ],
            },
            {
                "id": "trace_0002",
                "block_size": 64,
                "requests": [{"t": 0, "type": "n", "in": 64, "out": 1, "hash_ids": [1]}],
            },
        ],
    ),
}
COUNTED = [(name, place) for name, sample in SAMPLES.items() for place in sample.counts]
NUMBERED = [(name, place) for name, sample in SAMPLES.items() for place in sample.numbers]
HASHED = ["mooncake", "mooncake-sessions", "bailian", "kvcache-simulator", "magagent"]


def write(path: Path, rows: list[dict[str, object]], *, csv: bool) -> Path:
    if csv:
        lines = [",".join(rows[0])] + [",".join(str(row.get(column, "")) for column in rows[0]) for row in rows]
    else:
        lines = [json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def changed(tmp_path: Path, name: str, row: int = 1, **fields: object) -> Path:
    """The sample with fields of one row replaced; a field of ``...`` is left out."""
    sample = SAMPLES[name]
    rows = copy.deepcopy(sample.rows)
    rows[row].update({key.replace("_tokens_", " tokens"): value for key, value in fields.items()})
    rows[row] = {key: value for key, value in rows[row].items() if value is not ...}
    return write(tmp_path / "trace", rows, csv=sample.csv)


def read(tmp_path: Path, name: str) -> list[TraceRequest]:
    return list(open_trace(write(tmp_path / "trace", SAMPLES[name].rows, csv=SAMPLES[name].csv)))


def test_there_is_a_sample_of_every_format() -> None:
    assert sorted(SAMPLES) == [known.name for known in formats()]
    assert all(known.summary and known.time_unit for known in formats())


@pytest.mark.parametrize("name", SAMPLES)
def test_a_format_is_told_by_its_first_row_and_by_no_other(tmp_path: Path, name: str) -> None:
    sample = SAMPLES[name]
    assert open_trace(write(tmp_path / "trace", sample.rows, csv=sample.csv)).format.name == name
    assert open_trace(tmp_path / "trace", format=name).format.name == name
    claims = [known.name for known in formats() if known.recognises(sample.rows[0])]
    # The one name that two claim: microseconds since 1970 tell the two apart.
    assert claims == ([name] if name != "magagent" else ["magagent", "mooncake-sessions"])


@pytest.mark.parametrize("name", SAMPLES)
def test_every_format_loads_with_one_digest(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "trace", SAMPLES[name].rows, csv=SAMPLES[name].csv)
    one, other = load(open_trace(path)), load(open_trace(path))
    assert one.digest == other.digest
    assert one.warnings == other.warnings
    assert [r.arrival_s for r in one.requests] == [r.arrival_s for r in other.requests]
    assert all(r.blocks.dtype == np.int32 for r in one.requests)


@pytest.mark.parametrize(("name", "place"), COUNTED)
@pytest.mark.parametrize("wrong", [..., None, -1, 1.5, 7.0, "7x", "", "1_0", True, [], 2**31, "٣"])
def test_a_count_that_is_none(tmp_path: Path, name: str, place: str, wrong: object) -> None:
    value = "" if SAMPLES[name].csv and wrong in (..., None) else wrong
    with pytest.raises(TraceError) as raised:
        load(open_trace(changed(tmp_path, name, **{place: value})))
    assert raised.value.field == place
    assert raised.value.line == (3 if SAMPLES[name].csv else 2)
    assert raised.value.source == str(tmp_path / "trace")


@pytest.mark.parametrize(("name", "place"), NUMBERED)
@pytest.mark.parametrize(
    "wrong", [-1, -0.5, "soon", "1_0", True, [3], 1e308, 10**300, 10**400, 2**63, float("inf"), "nan", "inf"]
)
def test_a_time_that_is_none(tmp_path: Path, name: str, place: str, wrong: object) -> None:
    wrong = "1e999" if wrong == float("inf") else wrong
    path = changed(tmp_path, name, **{place: wrong})
    path.write_text(path.read_text().replace('"1e999"', "1e999"))
    with pytest.raises(TraceError) as raised:
        load(open_trace(path))
    assert raised.value.field == place


@pytest.mark.parametrize("name", HASHED)
@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        (..., "hash_ids"),
        (None, "hash_ids"),
        (7, "hash_ids"),
        ("7", "hash_ids"),
        ([[7]], "hash_ids[0]"),
        ([7, True], "hash_ids[1]"),
        ([7, 8.0], "hash_ids[1]"),
        ([7, None], "hash_ids[1]"),
        ([-7, 8], "hash_ids[0]"),
        ([7, 2**64], "hash_ids[1]"),
        ([1] * 40, "hash_ids"),
    ],
)
def test_ids_that_are_none(tmp_path: Path, name: str, wrong: object, place: str) -> None:
    with pytest.raises(TraceError) as raised:
        load(open_trace(changed(tmp_path, name, hash_ids=wrong)))
    assert (raised.value.field, raised.value.line) == (place, 2)


@pytest.mark.parametrize(
    ("name", "fields", "place"),
    [
        ("mooncake-sessions", {"session_id": 1.5}, "session_id"),
        ("mooncake-sessions", {"session_id": True}, "session_id"),
        ("mooncake", {"block_size": 16}, "block_size"),
        ("bailian", {"chat_id": [1]}, "chat_id"),
        ("bailian", {"parent_chat_id": 0.5}, "parent_chat_id"),
        ("bailian", {"turn": -1}, "turn"),
        ("kvcache-simulator", {"block_tokens": [64, 63, 1]}, "block_tokens"),
        ("kvcache-simulator", {"block_tokens": [63, 37]}, "block_tokens"),
        ("kvcache-simulator", {"block_tokens": [64, 65]}, "block_tokens"),
        ("kvcache-simulator", {"block_tokens": [64, "36"]}, "block_tokens[1]"),
        ("kvcache-simulator", {"block_size": 32}, "block_size"),
        ("llmservingsim", {"input_tok_ids": [1, 2, 3]}, "input_tok_ids"),
        ("llmservingsim", {"input_tok_ids": [1, 2, 3, 2**31]}, "input_tok_ids[3]"),
        ("llmservingsim", {"input_tok_ids": [1, 2, False, 4]}, "input_tok_ids[2]"),
        ("llmservingsim", {"output_tok_ids": {}}, "output_tok_ids"),
        ("llmservingsim", {"sub_requests": [{"input_toks": 3}]}, "sub_requests[0].output_toks"),
        ("llmservingsim", {"sub_requests": [3]}, "sub_requests[0]"),
        ("llmservingsim", {"sub_requests": {}}, "sub_requests"),
        (
            "llmservingsim",
            {"sub_requests": [{"input_toks": 3, "output_toks": 1, "tool_duration_ns": -5}]},
            "sub_requests[0].tool_duration_ns",
        ),
        ("agent-text", {"input": ...}, "input"),
        ("agent-text", {"input": 5}, "input"),
        ("agent-text", {"output": None}, "output"),
        ("agent-text", {"timestamp": "now"}, "timestamp"),
        ("openai-chat", {"messages": ...}, "messages"),
        ("openai-chat", {"messages": "hi"}, "messages"),
        ("openai-chat", {"messages": ["hi"]}, "messages[0]"),
        ("openai-chat", {"messages": [{"content": "hi"}]}, "messages[0].role"),
        ("openai-chat", {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ("openai-chat", {"messages": [{"role": "user", "content": ["hi"]}]}, "messages[0].content[0]"),
        ("openai-chat", {"body": 3}, "body"),
        ("openai-chat", {"max_tokens": -1}, "max_tokens"),
        ("sharegpt", {"conversations": None}, "conversations"),
        ("sharegpt", {"conversations": [{"value": "x"}]}, "conversations[0].from"),
        ("sharegpt", {"conversations": [{"from": "gpt", "value": 3}]}, "conversations[0].value"),
        ("azure", {"TIMESTAMP": "yesterday"}, "TIMESTAMP"),
        ("azure", {"TIMESTAMP": "2023-13-16 18:17:03.9"}, "TIMESTAMP"),
        ("azure", {"TIMESTAMP": "2023-11-16 18:17:03.9x"}, "TIMESTAMP"),
        ("azure", {"TIMESTAMP": "2023-11-16 18:17:03."}, None),
        ("servegen", {"rate": "-1"}, "rate"),
        ("servegen", {"rate": ""}, "rate"),
        ("servegen", {"rate": "1e17"}, "rate"),
        ("servegen", {"dist": "Cauchy"}, "dist"),
        ("servegen", {"rate": "1", "dist": "Gamma", "param1": "0"}, "param1"),
        ("servegen", {"rate": "1", "timestamp": "x"}, "timestamp"),
        ("weka", {"hash_id_scope": "global"}, "hash_id_scope"),
        ("weka", {"block_size": 32}, "block_size"),
        ("weka", {"requests": None}, "requests"),
        ("weka", {"requests": [{"type": "n"}]}, "requests[0].t"),
        ("weka", {"requests": [{"t": 1}]}, "requests[0].type"),
        ("weka", {"requests": [{"t": 1, "type": "n", "in": 64, "hash_ids": [1]}]}, "requests[0].out"),
        ("weka", {"requests": [{"t": 1, "type": "n", "in": 64, "out": 1, "hash_ids": []}]}, "requests[0].hash_ids"),
        (
            "weka",
            {"requests": [{"t": 1, "type": "n", "in": 64, "out": 1, "hash_ids": [1], "api_time": -1}]},
            "requests[0].api_time",
        ),
        (
            "weka",
            {"requests": [{"t": 1, "type": "subagent", "requests": [{"t": "x", "in": 64}]}]},
            "requests[0].requests[0].t",
        ),
    ],
)
def test_other_fields_that_are_wrong(tmp_path: Path, name: str, fields: dict[str, object], place: str | None) -> None:
    path = changed(tmp_path, name, **fields)
    if place is None:
        assert len(load(open_trace(path)).requests) == 2
        return
    with pytest.raises(TraceError) as raised:
        load(open_trace(path))
    assert (raised.value.field, raised.value.line) == (place, 3 if SAMPLES[name].csv else 2)


def test_mooncake(tmp_path: Path) -> None:
    first, second = read(tmp_path, "mooncake")
    assert (first.arrival_s, first.input_len, first.output_len, first.block_tokens) == (0.0, 1000, 5, 512)
    assert (second.arrival_s, second.blocks.tolist(), second.extra) == (27.482, [7, 9, 3], {"why": "x"})


def test_mooncake_sessions(tmp_path: Path) -> None:
    first, second = read(tmp_path, "mooncake-sessions")
    assert (first.session, first.arrival_s, first.after) == ("s7", 3.0, None)
    assert (second.session, second.arrival_s, second.after) == ("s7", None, After(request=-1, think_s=1.5))


def test_mooncake_with_blocks_of_another_size(tmp_path: Path) -> None:
    rows = [{**row, "hash_ids": [1, 2, 3, 4], "input_length": 64} for row in SAMPLES["mooncake"].rows]
    path = write(tmp_path / "trace", rows, csv=False)
    with pytest.raises(TraceError, match="at 512 tokens a block needs 1 ids, got 4"):
        load(open_trace(path))
    assert load(open_trace(path, id_tokens=16)).block_tokens == 16
    said = write(tmp_path / "trace", [{**row, "block_size": 16} for row in rows], csv=False)
    assert load(open_trace(said)).block_tokens == 16


def test_bailian_links_turns_to_one_session(tmp_path: Path) -> None:
    loaded = load(open_trace(write(tmp_path / "trace", SAMPLES["bailian"].rows, csv=False)))
    assert [(r.session, r.turn, r.arrival_s) for r in loaded.requests] == [(159, 1, 61.114), (159, 2, 70.5)]
    assert loaded.requests[1].extra == {"chat_id": 160, "parent_chat_id": 159, "type": "text"}


def test_kvcache_simulator(tmp_path: Path) -> None:
    first, second = read(tmp_path, "kvcache-simulator")
    assert (first.block_tokens, first.arrival_s, first.blocks.tolist()) == (64, None, [2001, 2002])
    assert (second.blocks.tolist(), second.extra) == ([2001, 2**63 + 5], {"user": 3})


def test_llmservingsim(tmp_path: Path) -> None:
    first, second = read(tmp_path, "llmservingsim")
    assert first.tokens is not None
    assert (first.tokens.tolist(), first.tokens.dtype, len(first.blocks)) == ([1, 2, 3], np.int32, 0)
    assert np.array_equal(first.extra["output_tokens"], [8, 9])
    assert second.arrival_s == 1.5


def test_llmservingsim_agents(tmp_path: Path) -> None:
    rows = [
        {
            "session_id": "t-0",
            "arrival_time_ns": 405,
            "kind": "swe",
            "sub_requests": [
                {"input_toks": 1472, "output_toks": 133, "tool_duration_ns": 127348767},
                {"input_toks": 1700, "output_toks": 10, "note": 1},
            ],
        },
        SAMPLES["llmservingsim"].rows[1],
    ]
    one, two, flat = list(open_trace(write(tmp_path / "trace", rows, csv=False)))
    assert (one.session, one.turn, one.arrival_s, one.after) == ("t-0", 0, 405 / 1e9, None)
    assert (two.session, two.turn, two.arrival_s, two.after) == ("t-0", 1, None, After(request=-1, think_s=0.127348767))
    assert two.extra == {"note": 1, "session": {"kind": "swe"}}
    assert (flat.session, flat.arrival_s) == (None, 1.5)
    loaded = load(open_trace(tmp_path / "trace"))
    assert loaded.requests[1].after == After(request=0, think_s=0.127348767)
    assert any(text.startswith("requests without tokens") and text.endswith(": 2") for text in loaded.warnings)


def test_magagent_counts_time_from_its_first_row(tmp_path: Path) -> None:
    first, second = read(tmp_path, "magagent")
    assert (first.arrival_s, first.block_tokens, first.session) == (0.0, 64, "6a")
    assert (second.arrival_s, len(second.blocks)) == (1.0, 0)


def test_agent_text_counts_bytes(tmp_path: Path) -> None:
    first, second = read(tmp_path, "agent-text")
    assert (first.input_len, first.output_len, first.block_tokens) == (7, 2, 64)
    assert first.tokens is not None
    assert first.tokens.tolist() == list("Grüße".encode())
    assert (second.arrival_s, second.input_len) == (0.5, 0)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_trace_that_counts_bytes_says_so(tmp_path: Path, name: str) -> None:
    loaded = load(open_trace(write(tmp_path / "trace", SAMPLES[name].rows, csv=SAMPLES[name].csv), format=name))
    warned = any("UTF-8 byte" in text for text in loaded.warnings)
    assert warned == (name in {"agent-text", "magagent", "openai-chat", "sharegpt"})


def test_openai_chat(tmp_path: Path) -> None:
    first, second = read(tmp_path, "openai-chat")
    assert first.tokens is not None
    assert second.tokens is not None
    assert bytes(first.tokens.tolist()) == bytes(second.tokens.tolist()) == b"user: hi\nassistant: "
    assert (first.output_len, first.model, first.tenant) == (3, "m", "u1")
    assert first.extra.keys() == {"temperature", "output_tokens"}
    assert second.output_len == 9


def test_openai_batch_form_and_tool_calls(tmp_path: Path) -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
    ]
    row = {"custom_id": "r1", "method": "POST", "body": {"model": "m", "messages": messages, "top_p": 1}}
    (request,) = open_trace(write(tmp_path / "trace", [row], csv=False))
    assert request.tokens is not None
    text = bytes(request.tokens.tolist()).decode()
    assert text.startswith('user: go\nassistant: [{"function":')
    assert '"image_url":{"url":"x"}' in text
    assert request.extra == {"custom_id": "r1", "method": "POST", "top_p": 1}


def test_sharegpt_prompts_grow_by_answer_and_question(tmp_path: Path) -> None:
    path = write(tmp_path / "trace", SAMPLES["sharegpt"].rows, csv=False)
    first, second = list(open_trace(path))
    assert first.tokens is not None
    assert second.tokens is not None
    assert bytes(first.tokens.tolist()) == b"human: a\ngpt: "
    assert bytes(second.tokens.tolist()) == b"human: a\ngpt: bb\nhuman: c\ngpt: "
    assert (first.session, first.turn, first.output_len) == ("c0", 0, 2)
    assert (second.turn, second.after) == (1, After(request=0, think_s=0.0))
    assert "conversations without an answer, left out: 1" in load(open_trace(path)).warnings


def test_azure_keeps_seven_decimals(tmp_path: Path) -> None:
    first, second = read(tmp_path, "azure")
    assert (first.arrival_s, first.input_len, first.output_len, len(first.blocks)) == (0.0, 4808, 10, 0)
    assert second.arrival_s == 0.0520001


@pytest.mark.parametrize(
    ("stamp", "second"),
    [
        ("2024-05-10 00:00:00", 0.0),
        ("2024-05-10 00:00:00.009930+00:00", 0.00993),
        ("2024-05-10 01:00:01+01:00", 1.0),
        ("2024-05-10T00:00:02.5Z", 2.5),
        ("2024-05-11 00:00:00.0000001", 86400.0000001),
    ],
)
def test_azure_dates_of_other_years(tmp_path: Path, stamp: str, second: float) -> None:
    rows = [
        {"TIMESTAMP": text, "ContextTokens": "1", "GeneratedTokens": "1"} for text in ("2024-05-10 00:00:00", stamp)
    ]
    assert list(open_trace(write(tmp_path / "trace", rows, csv=True)))[1].arrival_s == second


def test_burstgpt(tmp_path: Path) -> None:
    first, second = read(tmp_path, "burstgpt")
    assert (first.arrival_s, first.model, first.input_len, first.output_len) == (0.0, "ChatGPT", 472, 18)
    assert (second.arrival_s, second.extra) == (40.5, {"Total tokens": "1317", "Log Type": "API log"})


def test_burstgpt_with_sessions(tmp_path: Path) -> None:
    rows = [{**row, "Session ID": "1722ac82", "Elapsed time": "43"} for row in SAMPLES["burstgpt"].rows]
    first = next(iter(open_trace(write(tmp_path / "trace", rows, csv=True))))
    assert (first.session, first.measured) == ("1722ac82", {"e2e_s": 43.0})


def test_splitwise_and_vidur(tmp_path: Path) -> None:
    assert [(r.arrival_s, r.input_len) for r in read(tmp_path, "splitwise")] == [(0.5, 374), (10.0, 0)]
    assert [(r.arrival_s, r.output_len) for r in read(tmp_path, "vidur")] == [(0.25, 54), (2.0, 156)]
    assert read(tmp_path, "splitwise")[0].extra["batch_size"] == "1"


def test_lengths_without_times(tmp_path: Path) -> None:
    rows = [{"num_prefill_tokens": "3772", "num_decode_tokens": "54", "num_total_tokens": "3826", "pd_ratio": "69.85"}]
    loaded = load(open_trace(write(tmp_path / "trace", rows, csv=True)))
    assert loaded.format == "vidur"
    assert (loaded.requests[0].arrival_s, loaded.requests[0].input_len, loaded.unique_blocks) == (None, 3772, 0)
    assert loaded.warnings == (
        "lengths only: requests have no blocks, so nothing can be reused",
        "no arrival times: requests come in the order of the file",
    )


def test_weka_flattens_sub_agents_in_order_of_time(tmp_path: Path) -> None:
    requests = read(tmp_path, "weka")
    assert [(r.session, r.turn, r.arrival_s) for r in requests] == [
        ("trace_0001", 0, 0.0),
        ("trace_0001", 1, 6.0),
        ("trace_0001", 2, 12.5),
        ("trace_0001", 3, 15.0),
        ("trace_0002", 0, 0.0),
    ]
    main, agent_first, main_last, agent_last, other = requests
    assert main.after is None
    assert main_last.after == After(request=0, think_s=8.5)
    assert agent_first.after == After(request=0, think_s=2.0)  # begun 2 s after the answer, whatever its own clock says
    assert agent_last.after == After(request=1, think_s=8.0)
    assert (main.measured, main_last.measured) == ({"e2e_s": 4.0}, {"ttft_s": 0.5})
    assert main_last.extra["stop"] == "end_turn"
    assert agent_first.extra["agent"] == {"agent_id": "a1"}
    assert main.extra["session"] == {"models": ["opus"], "tool_tokens": 11899}
    assert main.blocks.tolist() == [*other.blocks.tolist(), 2]


def test_weka_ids_belong_to_their_session(tmp_path: Path) -> None:
    loaded = load(open_trace(write(tmp_path / "trace", SAMPLES["weka"].rows, csv=False)))
    paths = [r.blocks.tolist() for r in loaded.requests]
    assert paths == [[0, 1], [2], [0, 1, 3], [2, 4], [5]]
    assert loaded.unique_blocks == 6


def servegen(tmp_path: Path, seed: int = 0) -> list[tuple[float, str | None]]:
    columns = "client_id,timestamp,rate,cv,dist,param1,param2"
    rows = [
        "a,0,0.1,8.6,Weibull,0.37,9",
        "a,600,0.05,1,Gamma,1.2,9",
        "b,0,0.5,1,Exponential,0,0",
        "b,600,0,0,,0,0",
        "c,600,0.3,30,Gamma,0.001,9",
    ]
    path = tmp_path / "rates.csv"
    path.write_text("\n".join([columns, *rows]) + "\n")
    return [(r.arrival_s or 0.0, r.tenant) for r in open_trace(path).read(seed=seed)]


def test_servegen_draws_the_published_counts_in_order(tmp_path: Path) -> None:
    drawn = servegen(tmp_path)
    windows = [(client, int(second // 600)) for second, client in drawn]
    counts = {window: windows.count(window) for window in windows}
    assert counts == {("a", 0): 60, ("a", 1): 30, ("b", 0): 300, ("c", 1): 180}
    assert drawn == sorted(drawn, key=lambda arrival: arrival[0])


def test_servegen_repeats_with_its_seed_only(tmp_path: Path) -> None:
    assert servegen(tmp_path) == servegen(tmp_path)
    assert servegen(tmp_path) != servegen(tmp_path, seed=1)


def test_servegen_gaps_follow_the_shape(tmp_path: Path) -> None:
    """Coefficient of variation of the gaps: 1 for an exponential law, far more for a Weibull law of shape 0.37."""
    drawn = servegen(tmp_path)
    gaps = {
        client: np.diff([second for second, name in drawn if name == client and second < 600]) for client in ("a", "b")
    }
    assert 0.8 < gaps["b"].std() / gaps["b"].mean() < 1.2
    assert gaps["a"].std() / gaps["a"].mean() > 1.6


def test_servegen_refuses_to_keep_more_than_fits(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    windows = "".join(f"0,{number * 600},90,1,Exponential,0,0\n" for number in range(100))
    path.write_text("client_id,timestamp,rate,cv,dist,param1,param2\n" + windows)
    with pytest.raises(TraceError, match="stand for 5,400,000 requests: take"):
        load(open_trace(path))
    loaded = load(open_trace(path), limit=10)
    assert len(loaded.requests) == 10
    assert any("drawn arrivals" in text for text in loaded.warnings)
