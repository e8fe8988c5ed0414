"""A whole trace: order, blocks of other sizes, sessions, and what had to be assumed or mended."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator.errors import TraceError
from simulator.traces import LoadedTrace, load, open_trace


def chat(stamp: object, ids: list[int], input_length: int | None = None, **more: object) -> dict[str, object]:
    """A row of mooncake; a stamp of ``...`` is left out."""
    row = {"timestamp": stamp, "input_length": len(ids) * 512 if input_length is None else input_length}
    row |= {"output_length": 1, "hash_ids": ids, **more}
    return {key: value for key, value in row.items() if value is not ...}


def loaded(tmp_path: Path, rows: list[dict[str, object]], **options: Any) -> LoadedTrace:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load(open_trace(path), **options)


def arrivals(trace: LoadedTrace) -> list[float | None]:
    return [request.arrival_s for request in trace.requests]


def paths(trace: LoadedTrace) -> list[list[int]]:
    return [request.blocks.tolist() for request in trace.requests]


# -- Times ------------------------------------------------------------------------------------------------------------


def test_a_first_row_without_a_time_does_not_shift_the_others(tmp_path: Path) -> None:
    trace = loaded(tmp_path, [chat(..., [1]), chat(3000, [2]), chat(4000, [3])])
    assert arrivals(trace) == [0.0, 3.0, 4.0]
    assert trace.warnings == ("requests without a time, which arrive with the row before them: 1",)


def test_nor_where_times_count_from_an_epoch(tmp_path: Path) -> None:
    text = {"input": "a", "output": "", "session_id": "s"}
    rows = [text, {**text, "timestamp": 1_700_000_000_000_000}, text, {**text, "timestamp": 1_700_000_002_500_000}]
    assert arrivals(loaded(tmp_path, rows)) == [0.0, 0.0, 0.0, 2.5]


def test_rows_out_of_order_are_sorted_and_equal_times_keep_the_order_of_the_file(tmp_path: Path) -> None:
    rows = [chat(2000, [1]), chat(1000, [2]), chat(2000, [3]), chat(1000, [4])]
    trace = loaded(tmp_path, rows)
    assert arrivals(trace) == [1.0, 1.0, 2.0, 2.0]
    assert [request.input_len for request in trace.requests] == [512] * 4
    # Numbered by first sight in order of arrival: ids 2, 4, 1, 3.
    assert paths(trace) == [[0], [1], [2], [3]]
    assert trace.warnings == ("rows earlier than the row before them, sorted by arrival: 2",)


def test_an_epoch_that_does_not_begin_with_the_first_row(tmp_path: Path) -> None:
    text = {"input": "a", "output": "", "session_id": "s"}
    rows = [{**text, "timestamp": 1_700_000_000_000_000 + late} for late in (500_000, 0, 250_000)]
    assert arrivals(loaded(tmp_path, rows)) == [0.0, 0.25, 0.5]


def test_fractions_of_a_stamp(tmp_path: Path) -> None:
    assert arrivals(loaded(tmp_path, [chat(0.5, [1]), chat(1.25, [2])])) == [0.0005, 0.00125]


@pytest.mark.parametrize(("step", "warned"), [(0.5, True), (20, False), (99_000, False), (200_000, True)])
def test_times_in_another_unit_are_noticed(tmp_path: Path, step: float, warned: bool) -> None:
    trace = loaded(tmp_path, [chat(number * step, [number]) for number in range(200)])
    assert any("are the times in another unit?" in text for text in trace.warnings) == warned


def test_repeated_rows_are_repeated_requests(tmp_path: Path) -> None:
    trace = loaded(tmp_path, [chat(1000, [1, 2])] * 3)
    assert (paths(trace), trace.warnings) == ([[0, 1]] * 3, ())


def test_no_times_at_all_keeps_the_order_of_the_file(tmp_path: Path) -> None:
    row = {"block_size": 64, "input_length": 64}
    trace = loaded(tmp_path, [{**row, "hash_ids": [number]} for number in (5, 3, 4)])
    assert (arrivals(trace), paths(trace)) == ([None] * 3, [[0], [1], [2]])
    assert trace.warnings == ("no arrival times: requests come in the order of the file",)


def test_dejitter_spreads_ticks_in_order_and_leaves_the_rest(tmp_path: Path) -> None:
    rows = [chat(stamp, [number]) for number, stamp in enumerate([0, 0, 0, 3000, 6000, 6000])]
    plain, one, same = (
        loaded(tmp_path, rows),
        loaded(tmp_path, rows, dejitter=True),
        loaded(tmp_path, rows, dejitter=True),
    )
    other = loaded(tmp_path, rows, dejitter=True, seed=1)
    assert arrivals(plain) == [0.0, 0.0, 0.0, 3.0, 6.0, 6.0]
    spread = [value for value in arrivals(one) if value is not None]
    assert spread == sorted(spread)
    assert len(set(spread)) == 6
    assert spread[2] < 3.0 == spread[3]
    assert 6.0 < spread[4] < spread[5] < 9.0
    assert arrivals(one) == arrivals(same) != arrivals(other)
    assert paths(one) == paths(plain)


# -- Blocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("input_length", [1, 512, 1025, 1536, 5000])
def test_a_length_that_does_not_fit_its_ids_is_refused(tmp_path: Path, input_length: int) -> None:
    rows = [chat(0, [1]), chat(1, [1, 2], input_length)]
    with pytest.raises(TraceError, match=r"trace\.jsonl:2: field 'hash_ids': .* got 2"):
        loaded(tmp_path, rows)


def test_or_mended_and_counted(tmp_path: Path) -> None:
    rows = [chat(0, [1, 2]), chat(1, [1, 2, 3], 600), chat(2, [1, 2], 5000), chat(3, [1, 2], 1023)]
    trace = loaded(tmp_path, rows, mismatch="repair")
    assert [request.input_len for request in trace.requests] == [1024, 600, 1024, 1023]
    assert paths(trace) == [[0, 1]] * 4
    assert trace.warnings == (
        "rows with a prompt longer than their ids, cut to what the ids cover: 1",
        "rows with ids beyond the prompt's end, cut off: 1",
    )


def test_an_id_with_two_predecessors_is_refused_with_its_line(tmp_path: Path) -> None:
    rows = [chat(0, [1, 2]), chat(1, [1]), chat(2, [3, 2])]
    with pytest.raises(
        TraceError, match=r"trace\.jsonl:3: field 'hash_ids': id 2 follows 3 here, but 1 earlier.*rechain"
    ):
        loaded(tmp_path, rows)


def test_or_its_blocks_are_named_by_their_path(tmp_path: Path) -> None:
    rows = [chat(0, [1, 2]), chat(1, [1]), chat(2, [3, 2]), chat(3, [3, 2, 2])]
    trace = loaded(tmp_path, rows, prefix="rechain")
    assert paths(trace) == [[0, 1], [0], [2, 3], [2, 3, 4]]
    assert trace.unique_blocks == 5


def test_a_started_last_block_counts_or_is_dropped(tmp_path: Path) -> None:
    rows = [chat(0, [1, 2, 3], 1100), chat(1, [1, 2, 4], 1536), chat(2, [9], 17)]
    assert paths(loaded(tmp_path, rows)) == [[0, 1, 2], [0, 1, 3], [4]]
    assert paths(loaded(tmp_path, rows, partial="drop")) == [[0, 1], [0, 1, 2], []]


def test_coarser_blocks(tmp_path: Path) -> None:
    rows = [chat(0, [1, 2, 3], 1100), chat(1, [1, 2, 4, 5, 6]), chat(2, [1, 2, 4, 5]), chat(3, [9])]
    trace = loaded(tmp_path, rows, block_tokens=1024)
    assert paths(trace) == [[0, 1], [0, 2, 3], [0, 2], [4]]
    assert (trace.block_tokens, trace.unique_blocks, trace.warnings) == (1024, 5, ())
    assert {request.block_tokens for request in trace.requests} == {1024}
    assert paths(loaded(tmp_path, rows, block_tokens=1024, partial="drop")) == [[0], [0, 1], [0, 1], []]


def test_finer_blocks_are_flagged(tmp_path: Path) -> None:
    rows = [chat(0, [1, 2], 700), chat(1, [1, 3])]
    trace = loaded(tmp_path, rows, block_tokens=256)
    assert paths(trace) == [[0, 1, 2], [0, 1, 3, 4]]
    assert [text for text in trace.warnings if "finer than the trace's 512" in text]
    assert paths(loaded(tmp_path, rows, block_tokens=256, partial="drop")) == [[0, 1], [0, 1, 2, 3]]


def test_a_size_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="blocks of 768 tokens cannot be made of the trace's 512"):
        loaded(tmp_path, [chat(0, [1])], block_tokens=768)


@pytest.mark.parametrize(
    ("size", "ids", "field"),
    [(2**31 - 1, [1], "block_size"), (2**17, [1], "block_size"), (2**16, list(range(2**11 + 1)), "hash_ids")],
)
def test_a_row_that_splits_into_more_blocks_than_fit_is_refused(
    tmp_path: Path, size: int, ids: list[int], field: str
) -> None:
    rows = [chat(0, ids, input_length=size * len(ids), block_size=size)]
    tracemalloc.start()
    try:
        with pytest.raises(TraceError, match="blocks of 1 tokens") as raised:
            loaded(tmp_path, rows, block_tokens=1)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert (raised.value.line, raised.value.field) == (1, field)
    assert raised.value.source.startswith(str(tmp_path))


def test_text_takes_any_size(tmp_path: Path) -> None:
    text = {"timestamp": 0, "output": "", "session_id": "s"}
    rows = [{**text, "input": "abcdefgh"}, {**text, "input": "abcdeXgh"}, {**text, "input": "abc"}]
    assert paths(loaded(tmp_path, rows, block_tokens=3)) == [[0, 1], [0, 2], [0]]
    assert paths(loaded(tmp_path, rows, block_tokens=5)) == [[0], [0], []]
    assert loaded(tmp_path, rows).block_tokens == 64


def test_ids_are_dense_and_numbered_by_first_sight(tmp_path: Path) -> None:
    rng = random.Random(7)
    names: dict[tuple[int, ...], int] = {}
    rows = []
    for number in range(300):
        path = tuple(rng.randrange(3) for _ in range(rng.randrange(9)))
        ids = [names.setdefault(path[: end + 1], rng.randrange(2**50)) for end in range(len(path))]
        rows.append(chat(rng.randrange(100) * 1000, ids, number=number))
    trace = loaded(tmp_path, rows)
    seen: dict[int, int] = {}
    raw = {row["number"]: row["hash_ids"] for row in rows}
    for request in trace.requests:
        expected = [seen.setdefault(block, len(seen)) for block in raw[request.extra["number"]]]  # type: ignore[attr-defined]
        assert request.blocks.tolist() == expected
        assert request.blocks.dtype == np.int32
    assert trace.unique_blocks == len(seen) == len(names)


def test_prompts_that_grow_share_memory(tmp_path: Path) -> None:
    requests = [
        {"t": turn, "type": "n", "in": 64 * (turn + 1), "out": 1, "hash_ids": list(range(turn + 1))}
        for turn in range(40)
    ]
    trace = loaded(tmp_path, [{"id": "s", "block_size": 64, "requests": requests}])
    assert paths(trace) == [list(range(turn + 1)) for turn in range(40)]
    owners = {id(request.blocks if request.blocks.base is None else request.blocks.base) for request in trace.requests}
    assert len(owners) == 1


# -- Sessions ---------------------------------------------------------------------------------------------------------


def session(name: str, times: list[float], **more: object) -> dict[str, object]:
    calls = [
        {"t": time, "type": "n", "in": 64, "out": 1, "hash_ids": [0], "api_time": 50.0, "think_time": 1.0}
        for time in times
    ]
    return {"id": name, "block_size": 64, "requests": calls, **more}


SESSIONS = [session("a", [0, 10]), session("b", [0, 4]), session("c", [0, 1]), session("d", [0, 20])]


def starts(trace: LoadedTrace) -> dict[object, float | None]:
    return {request.session: request.arrival_s for request in trace.requests if request.turn == 0}


def test_users_play_shuffled_sessions_one_second_after_each_other(tmp_path: Path) -> None:
    trace = loaded(tmp_path, SESSIONS, users=2, seed=0)
    order = list("abcd")
    random.Random(0).shuffle(order)  # c, a, b, d
    assert order == ["c", "a", "b", "d"]
    # c ends with its last request at 1 s, however long that one runs; b follows at 2 s and ends at 6 s, d at 7 s.
    assert starts(trace) == {"c": 0.0, "a": 0.0, "b": 2.0, "d": 7.0}
    assert [(r.session, r.arrival_s) for r in trace.requests] == [
        ("a", 0.0),  # of one instant, in order of the file
        ("c", 0.0),
        ("c", 1.0),
        ("b", 2.0),
        ("b", 6.0),
        ("d", 7.0),
        ("a", 10.0),
        ("d", 27.0),
    ]
    assert starts(loaded(tmp_path, SESSIONS, users=2, seed=1)) != starts(trace)


def test_without_a_choice_sessions_come_one_after_another(tmp_path: Path) -> None:
    trace = loaded(tmp_path, SESSIONS)
    assert starts(trace) == {"a": 0.0, "b": 11.0, "c": 16.0, "d": 18.0}
    assert [text for text in trace.warnings if "played one after another" in text]


def test_sessions_spread_over_a_span(tmp_path: Path) -> None:
    trace = loaded(tmp_path, SESSIONS, spread_s=100.0, seed=3)
    begun = starts(trace)
    assert all(start is not None and 0 <= start <= 100 for start in begun.values())
    assert len(set(begun.values())) == 4
    for request in trace.requests:
        assert request.arrival_s is not None
        if request.session == "d" and request.turn == 1:
            assert request.arrival_s == pytest.approx(begun["d"] + 20)  # type: ignore[operator]
    assert begun == starts(loaded(tmp_path, SESSIONS, spread_s=100.0, seed=3))
    assert begun != starts(loaded(tmp_path, SESSIONS, spread_s=100.0, seed=4))


def test_two_sessions_of_one_name_stay_two(tmp_path: Path) -> None:
    trace = loaded(tmp_path, [session("a", [0, 10]), session("a", [0, 10])], users=1)
    assert [request.arrival_s for request in trace.requests] == [0.0, 10.0, 11.0, 21.0]
    assert trace.unique_blocks == 2


def test_sessions_with_a_clock_can_be_played_by_users_too(tmp_path: Path) -> None:
    text = {"output": "", "input": "x" * 64}
    rows = [
        {**text, "session_id": name, "timestamp": time * 1_000_000} for name, time in [("a", 5), ("b", 7), ("a", 9)]
    ]
    assert [(r.session, r.arrival_s) for r in loaded(tmp_path, rows).requests] == [("a", 0.0), ("b", 2.0), ("a", 4.0)]
    played = loaded(tmp_path, rows, users=1, seed=1)
    assert [(r.session, r.arrival_s) for r in played.requests] == [("b", 0.0), ("a", 1.0), ("a", 5.0)]


def test_turns_that_wait_come_when_the_one_before_is_likely_done(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        chat(0, [1], session_id="a"),
        chat(..., [1, 2], session_id="a", delay=2000),
        chat(2500, [3], session_id="b"),
        chat(..., [3, 4], session_id="b", delay=0),
    ]
    trace = loaded(tmp_path, rows)
    assert [(r.session, r.turn, r.arrival_s) for r in trace.requests] == [
        ("a", 0, 0.0),
        ("b", 0, 2.5),
        ("a", 1, None),
        ("b", 1, None),
    ]
    assert [r.after.request for r in trace.requests if r.after] == [0, 0]


def test_a_delay_before_a_first_turn_is_its_arrival(tmp_path: Path) -> None:
    trace = loaded(tmp_path, [chat(..., [1], session_id="a", delay=1500)])
    assert (arrivals(trace), trace.requests[0].after) == ([1.5], None)


def test_users_need_sessions(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"--users.*--spread.* need sessions, but 2 requests are in none"):
        loaded(tmp_path, [chat(0, [1]), chat(1, [2])], users=4)


def test_conversations_without_times_can_be_played_by_users(tmp_path: Path) -> None:
    turns = [{"from": role, "value": "x" * 80} for role in ("human", "gpt", "human", "gpt")]
    rows = [{"id": name, "conversations": turns} for name in "ab"]
    trace = loaded(tmp_path, rows, users=2)
    assert [(r.session, r.turn, r.arrival_s) for r in trace.requests] == [
        ("a", 0, 0.0),
        ("b", 0, 0.0),
        ("a", 1, None),
        ("b", 1, None),
    ]


def test_the_longest_delays_and_times_sum_to_something_finite(tmp_path: Path) -> None:
    longest = float(2**62)
    turns = [chat(..., [1], session_id="a", delay=longest) for _ in range(50)]
    assert all(math.isfinite(second or 0.0) for second in arrivals(loaded(tmp_path, [chat(0, [1]), *turns])))
    played = loaded(tmp_path, [session(name, [0, longest]) for name in "abc"], users=1)
    assert all(second is not None and math.isfinite(second * 1e9) for second in arrivals(played))


# -- Options ----------------------------------------------------------------------------------------------------------


def test_a_limit_reads_no_further(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(chat(number, [number])) + "\n" for number in range(5)) + "not json\n")
    assert len(load(open_trace(path), limit=5).requests) == 5
    with pytest.raises(TraceError, match="not JSON"):
        load(open_trace(path))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"limit": 0}, "limit must be at least 1"),
        ({"block_tokens": 0}, "block_tokens must be at least 1"),
        ({"users": 0}, "users must be at least 1"),
        ({"spread_s": -1.0}, "spread_s must be from 0"),
        ({"spread_s": float("nan")}, "spread_s must be from 0"),
        ({"spread_s": 1e308}, "spread_s must be from 0"),
        ({"spread_s": 1.0, "users": 2}, "give one"),
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(TraceError, match=problem):
        loaded(tmp_path, [chat(0, [1])], **options)


def test_id_tokens_that_make_no_sense(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps(chat(0, [1])))
    with pytest.raises(TraceError, match="id_tokens must be at least 1"):
        open_trace(path, id_tokens=0)


def test_reading_holds_one_row_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with path.open("w") as file:
        file.writelines(json.dumps(chat(number, [number], note=f"{number:5000}")) + "\n" for number in range(4000))
    assert path.stat().st_size > 20_000_000
    tracemalloc.start()
    try:
        assert sum(1 for _ in open_trace(path)) == 4000
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 5_000_000


@pytest.mark.slow
def test_reading_a_million_rows_holds_no_more_than_a_few(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with path.open("w") as file:
        file.writelines(json.dumps(chat(number, [number, number + 1])) + "\n" for number in range(0, 2_000_000, 2))
    program = (
        "import resource, sys; from simulator.traces import open_trace\n"
        "requests = iter(open_trace(sys.argv[1])); [next(requests) for _ in range(1000)]\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "assert sum(1 for _ in requests) == 999_000\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    run = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 8_000  # KiB
