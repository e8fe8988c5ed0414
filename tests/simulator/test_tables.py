"""What a terminal shows: every number whole, however narrow it is."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console, RenderableType

from simulator.describe import Description, describe
from simulator.replay import ReplayOptions, replay
from simulator.result import ReplayResult
from simulator.sizes import parse_size
from simulator.tables import description_tables, replay_tables
from simulator.workloads import workload


@pytest.fixture(scope="module")
def result() -> ReplayResult:
    trace = workload("workload:chat?requests=500")
    found = replay(trace, ReplayOptions(device_tokens=parse_size("5%")), stopwatch_s=iter((0.0, 0.001)).__next__)
    # As large as a long trace makes them: every column is wider than its head.
    record = json.loads(found.to_json())
    for key in ("hit_tokens", "input_tokens", "hit_blocks", "block_accesses"):
        record[key] *= 10_000
    return ReplayResult.from_json(json.dumps(record))


@pytest.fixture(scope="module")
def description() -> Description:
    return describe(workload("workload:chat?requests=500"))


def shown(part: RenderableType, width: int) -> str:
    screen = io.StringIO()
    Console(file=screen, force_terminal=True, width=width, highlight=False, legacy_windows=False).print(part)
    text = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())
    assert max(map(len, text.splitlines())) <= width
    return text


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_number_of_a_replay_is_cut(width: int, result: ReplayResult) -> None:
    text = shown(replay_tables([result, result]), width)
    assert "…" not in text
    assert text.count(f"{100 * result.token_hit_rate:.2f} %") == 2
    assert text.count(f"{100 * result.hit_tokens / result.ceiling.hit_tokens:.2f} %") == 2


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_number_of_a_description_is_cut(width: int, description: Description) -> None:
    text = shown(description_tables(description), width)
    reuse = description.reuse
    assert reuse is not None
    assert "…" not in text
    for number in (description.input.total, description.output.max, reuse.unique_blocks, reuse.unique_tokens):
        assert f"{number:,}" in text
    assert f"{reuse.lru[-1].capacity_blocks:,}" in text


def test_a_narrow_table_leaves_out_what_matters_least_first(result: ReplayResult) -> None:
    heads = ["requests/s", "evicted", "computed tokens", "hit blocks", "of ceiling"]
    counts = [
        sum(head in shown(replay_tables([result]), width) for head in heads) for width in (120, 100, 90, 80, 70, 60)
    ]
    assert counts == sorted(counts, reverse=True)
    assert (counts[0], counts[-1]) == (5, 1)
    for width in (100, 90, 80, 70, 60):
        text = shown(replay_tables([result]), width)
        kept = [head in text for head in heads]
        assert kept == sorted(kept)


def test_where_no_table_fits_each_number_has_a_line(result: ReplayResult) -> None:
    lines = shown(replay_tables([result]), 40).splitlines()
    assert f"  hit blocks: {result.hit_blocks:,}" in [line.rstrip() for line in lines]
