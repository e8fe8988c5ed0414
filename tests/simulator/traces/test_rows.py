"""Text to rows: JSON lines, one JSON array, CSV; what is wrong is named with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simulator.errors import TraceError
from simulator.traces import load, open_trace

GOOD = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "trace"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    "line",
    [
        "{",
        '{"timestamp": 0,}',
        json.dumps(GOOD)[:-3],
        json.dumps(GOOD) + "x",
        json.dumps(GOOD).replace("600", "NaN"),
        json.dumps(GOOD).replace("600", "-Infinity"),
        json.dumps(GOOD).replace("600", "9" * 5000),
        json.dumps(GOOD).replace("600", "0600"),
        json.dumps(GOOD).replace("[1, 2]", "[1, 2,]"),
        json.dumps(GOOD).replace("[1, 2]", "[1 2]"),
        "[" * 100_000,
        "not json",
        b'{"timestamp": 0, "input_length": "\xff"}',
    ],
)
def test_text_that_is_not_json(tmp_path: Path, line: str | bytes) -> None:
    line = line if isinstance(line, bytes) else line.encode()
    path = written(tmp_path, json.dumps(GOOD).encode() + b"\n" + line + b"\n")
    with pytest.raises(TraceError, match=r"trace:2: not JSON"):
        load(open_trace(path))


@pytest.mark.parametrize("line", ["17", '"text"', "null", "true"])
def test_a_row_that_is_no_object(tmp_path: Path, line: str) -> None:
    path = written(tmp_path, json.dumps(GOOD) + "\n" + line + "\n")
    with pytest.raises(TraceError, match=r"trace:2: a row must be an object"):
        load(open_trace(path))


def test_a_whole_array_reads_like_lines(tmp_path: Path) -> None:
    rows = [{**GOOD, "timestamp": n, "note": "é" * n, "hash_ids": [n, n + 9]} for n in range(300)]
    lines = list(open_trace(written(tmp_path, "\n".join(map(json.dumps, rows)))))
    for text in (json.dumps(rows), json.dumps(rows, indent=2, ensure_ascii=False), "\ufeff \n" + json.dumps(rows)):
        requests = list(open_trace(written(tmp_path, text)))
        assert [(r.arrival_s, r.blocks.tolist(), r.extra) for r in requests] == [
            (r.arrival_s, r.blocks.tolist(), r.extra) for r in lines
        ]


def test_an_array_larger_than_any_window(tmp_path: Path) -> None:
    rows = [{**GOOD, "note": "x" * 1_500_000, "input_length": 513 + n} for n in range(4)]
    requests = list(open_trace(written(tmp_path, json.dumps(rows, indent=1))))
    assert [request.input_len for request in requests] == [513, 514, 515, 516]


@pytest.mark.parametrize(
    ("tail", "line", "problem"),
    [
        ("", 3, "ends before"),
        (",", 3, "not JSON: Expecting value"),
        (",]", 3, "not JSON: Expecting value"),
        (' "x"]', 3, "expected ']', got '\"'"),
        (",\n{]", 4, "not JSON"),
        (",\n3]", 4, "a row must be an object"),
        ("] []", 3, "after the end of the array"),
    ],
)
def test_a_broken_array_is_named_with_its_line(tmp_path: Path, tail: str, line: int, problem: str) -> None:
    path = written(tmp_path, f"[\n{json.dumps(GOOD)},\n{json.dumps({**GOOD, 'timestamp': 1})}{tail}")
    with pytest.raises(TraceError) as raised:
        load(open_trace(path))
    assert problem in str(raised.value)
    assert raised.value.line == line


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n1,2\n", 2, "3 columns but 2 cells"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n1,2,3\n\n1,2,3,4\n", 4, "3 columns but 4 cells"),
        ("arrived_at,arrived_at,num_prefill_tokens\n1,2,3\n", 1, "two columns have one name"),
        ('arrived_at,num_prefill_tokens,num_decode_tokens\n1,"2,3\n', 2, "not CSV"),
        (b"arrived_at,num_prefill_tokens,num_decode_tokens\n1,\xff,3\n", 2, "not UTF-8"),
    ],
)
def test_broken_csv(tmp_path: Path, text: str | bytes, line: int, problem: str) -> None:
    with pytest.raises(TraceError, match=problem) as raised:
        load(open_trace(written(tmp_path, text)))
    assert raised.value.line == line


@pytest.mark.parametrize("text", ['{"who": 1}', '[{"who": 1}]', "a,b\n1,2\n", "just words\nmore words\n"])
def test_an_unknown_format_lists_what_is_known(tmp_path: Path, text: str) -> None:
    with pytest.raises(TraceError, match=r"no known trace format has rows with .*known are agent-text, azure"):
        open_trace(written(tmp_path, text))


def test_a_forced_format_that_does_not_exist(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(GOOD))
    with pytest.raises(TraceError, match="did you mean 'mooncake'"):
        open_trace(path, format="moncake")
    with pytest.raises(TraceError, match="known are agent-text"):
        open_trace(path, format="zzz")


def test_a_forced_format_is_not_second_guessed(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(GOOD))
    with pytest.raises(TraceError, match=r"trace:1: field 'input': is missing"):
        list(open_trace(path, format="agent-text"))
