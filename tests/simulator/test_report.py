"""The report: complete, self-contained, and the same numbers as the result."""

from __future__ import annotations

import dataclasses
import json
import re
from html import unescape
from html.parser import HTMLParser

import pytest

from simulator.replay import ReplayOptions, replay
from simulator.report import CurvePoint, curve_capacities, optimum_point, render_report
from simulator.result import HIT_DEFINITION, HitRule, ReplayResult, results_to_json
from simulator.reuse import measure_reuse
from simulator.sizes import parse_size
from simulator.traces import LoadedTrace
from simulator.workloads import workload
from tests.support.replays import trace_of

VOID = {"meta", "link", "br", "img", "input", "hr", "wbr"}
#: Elements and attributes that would make a browser fetch something.
FETCHING = {"link", "img", "iframe", "object", "embed", "audio", "video", "source", "base"}


class Page(HTMLParser):
    """Collects what a test asks of a page, and fails where tags do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self.text = ""
        self.rows: list[list[str]] = []
        self.feed(html)
        self.close()
        assert not self.open, f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            name = dict(self.tags[-1][1]).get("id") or "code"
            self.scripts[name] = self.scripts.get(name, "") + data
            return
        self.text += data
        if {"td", "th"} & set(self.open[-2:]) and self.rows:
            self.rows[-1][-1] += data

    def attributes(self, name: str) -> list[str]:
        return [value for _, attributes in self.tags if (value := attributes.get(name)) is not None]


def results_of(trace: LoadedTrace, *policies: str, size: str = "20%") -> list[ReplayResult]:
    return [replay(trace, ReplayOptions(device_tokens=parse_size(size), policy=policy)) for policy in policies]


@pytest.fixture(scope="module")
def chat() -> LoadedTrace:
    return workload("workload:chat?requests=400")


@pytest.fixture(scope="module")
def results(chat: LoadedTrace) -> list[ReplayResult]:
    return results_of(chat, "lru", "optimal")


@pytest.fixture(scope="module")
def html(chat: LoadedTrace, results: list[ReplayResult]) -> str:
    reuse = measure_reuse(chat.requests)
    capacities = curve_capacities(point_count=3, unique_blocks=chat.unique_blocks)
    optimum = [optimum_point(chat, reuse, capacity_blocks=blocks) for blocks in capacities]
    return render_report(results, trace=chat, reuse=reuse, optimum=optimum)


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def test_the_page_fetches_nothing(html: str, page: Page) -> None:
    assert not re.search(r"https?:|//[a-z]", re.sub(r"^// .*$", "", html, flags=re.M))
    assert not {tag for tag, _ in page.tags} & FETCHING
    assert not page.attributes("src")
    assert all(target.startswith("#") for target in page.attributes("href"))
    assert "@import" not in html
    assert all(target.startswith("#") for target in re.findall(r"url\((.*?)\)", html))


def test_every_reference_finds_its_one_target(html: str, page: Page) -> None:
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"(?:url\(|href=\")#([^)\"]+)", html)) <= set(ids)


def test_the_embedded_json_is_the_result(page: Page, results: list[ReplayResult]) -> None:
    assert json.loads(page.scripts["results"]) == json.loads(results_to_json(results))


def test_the_embedded_curve_passes_through_the_runs(page: Page, results: list[ReplayResult]) -> None:
    curve = json.loads(page.scripts["curve"])
    lru = {point["capacity_tokens"]: (point["hit_blocks"], point["hit_tokens"]) for point in curve["lru"]}
    assert lru[results[0].device.capacity_tokens] == (results[0].hit_blocks, results[0].hit_tokens)
    counts = [point["hit_blocks"] for point in curve["lru"]]
    assert counts == sorted(counts)
    assert counts[-1] == results[0].ceiling.hit_blocks == curve["optimum"][-1]["hit_blocks"]
    assert len(curve["optimum"]) == 3


def test_the_table_shows_every_run_and_the_ceiling(page: Page, results: list[ReplayResult]) -> None:
    rows = {row[0]: row for row in page.rows if row}
    for result in results:
        assert rows[result.policy][1] == f"{result.hit_blocks:,}"
        assert rows[result.policy][3] == f"{100 * result.token_hit_rate:.2f} %"
        assert rows[result.policy][5] == f"{result.computed_tokens:,}"
    assert rows["infinite cache"][1] == f"{results[0].ceiling.hit_blocks:,}"
    sortable = [attributes["data-value"] for tag, attributes in page.tags if tag == "td" and "data-value" in attributes]
    assert str(results[0].hit_blocks) in sortable
    assert sum(tag == "button" for tag, _ in page.tags) == len(rows["lru"])


def test_the_page_says_what_a_hit_is_and_where_the_numbers_come_from(
    page: Page, chat: LoadedTrace, results: list[ReplayResult]
) -> None:
    assert HIT_DEFINITION in page.text
    for words in (chat.digest, results[0].version, "20%", f"{results[0].input_tokens:,}"):
        assert words in page.text
    options = {row[0]: row[1] for row in page.rows if len(row) == 2}
    blocks = results[0].device.capacity_tokens // 512
    assert options["policy"] == "lru, optimal"
    assert (options["format"], options["device tokens"], options["tokens per block"]) == ("workload", "20%", "512")
    assert options["device tier"].startswith(f"{512 * blocks:,} tokens")
    assert options["device tier"].endswith(f"= {blocks:,} blocks")


def test_every_picture_has_a_title_words_and_takes_the_pages_colours(html: str, page: Page) -> None:
    labels = page.attributes("aria-label")
    assert len(labels) == html.count("<svg") == html.count("<figcaption>") == 4
    assert "lru" in labels[0]
    for title in ("Hit rate by cache size", "Reuse distance", "Arrivals", "Prompt lengths"):
        assert title in page.text
    drawn = "".join(re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL))
    assert "currentColor" in drawn
    assert set(re.findall(r"#[0-9a-f]{6}\b", drawn)) <= {"#ffffff", "#000000"}
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html
    assert 'name="viewport"' in html


def test_the_optimum_is_drawn_where_it_was_measured_and_nowhere_else(
    html: str, page: Page, chat: LoadedTrace, results: list[ReplayResult]
) -> None:
    curve = next(svg for svg in re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL) if "optimum" in svg)
    green = re.findall(r"<(\w+)[^>]*var\(--green\)", curve)
    assert green.count("use") == 3 + 1  # and one in the legend
    assert not re.search(r"<path [^>]*fill: none; stroke: var\(--green\)", curve)
    assert re.search(r"<path [^>]*fill: none; stroke: var\(--blue\)", curve)
    assert "the optimum was measured at the points only" in page.text
    without = render_report(results, trace=chat, reuse=measure_reuse(chat.requests))
    assert "the optimum is left out, since each of its points takes a replay of 400 requests" in without


def test_the_same_run_draws_the_same_page(chat: LoadedTrace, results: list[ReplayResult]) -> None:
    reuse = measure_reuse(chat.requests)
    first, second = (render_report(results, trace=chat, reuse=reuse) for _ in range(2))
    assert first == second


def test_hostile_names_stay_text(chat: LoadedTrace, results: list[ReplayResult]) -> None:
    evil = '</script><script>alert("1")</script>&<b>'
    named = [dataclasses.replace(results[0], trace=evil, warnings=(evil,), options={"format": evil})]
    html = render_report(named, trace=chat, reuse=measure_reuse(chat.requests))
    page = Page(html)
    assert [tag for tag, _ in page.tags].count("script") == 3
    assert "b" not in {tag for tag, _ in page.tags}
    assert json.loads(page.scripts["results"])["trace"] == evil
    assert unescape(evil) in page.text


@pytest.mark.parametrize(
    "prompts",
    [
        pytest.param([([0], 0)], id="one request"),
        pytest.param([([0, 1], 1), ([2], 0)], id="no reuse"),
        pytest.param([([0], 3), ([0], 3)], id="one token"),
    ],
)
def test_small_traces_have_a_report_too(prompts: list[tuple[list[int], int]]) -> None:
    trace = trace_of(prompts)
    page = Page(render_report(results_of(trace, "lru", size="100%"), trace=trace, reuse=measure_reuse(trace.requests)))
    assert "Hit rate by cache size" in page.text


def test_requests_without_a_common_clock_have_no_picture_of_arrivals(
    chat: LoadedTrace, results: list[ReplayResult]
) -> None:
    requests = [dataclasses.replace(request, arrival_s=None) for request in chat.requests]
    trace = dataclasses.replace(chat, requests=requests)
    page = Page(render_report(results, trace=trace, reuse=measure_reuse(requests)))
    assert "Arrivals" not in page.text
    assert "Prompt lengths" in page.text


def test_the_curve_covers_all_sizes_and_those_of_the_runs() -> None:
    capacities = curve_capacities(point_count=8, unique_blocks=10_000, include=[77, 20_000, 3])
    assert capacities == sorted(set(capacities))
    assert {3, 77, 20_000} <= set(capacities)
    assert (capacities[0], capacities[-1]) == (3, 20_000)
    assert curve_capacities(point_count=8, unique_blocks=1) == [1]


def test_the_optimum_follows_the_hit_rule_of_the_reuse() -> None:
    trace = trace_of([([0, 1], 0), ([0, 1], 0)])
    points = {
        rule: optimum_point(trace, measure_reuse(trace.requests, hit_rule=rule), capacity_blocks=2) for rule in HitRule
    }
    assert points[HitRule.TRACE] == CurvePoint(capacity_tokens=8, hit_blocks=2, hit_tokens=8)
    assert points[HitRule.SERVING] == CurvePoint(capacity_tokens=8, hit_blocks=1, hit_tokens=4)
