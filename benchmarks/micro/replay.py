"""How fast is a real trace read and replayed?

Mooncake's conversation trace, 12,031 requests of 24 blocks of 512 tokens on average: reading it, and its replay from a
cold store that retains 20 % of its unique blocks, blocks of 512 tokens, the whole trace counted, no warm-up. With
``--all`` also 49,334 requests of coding agents at 64 tokens a block: ``kvsim replay`` end to end in a process of its
own, with its highest memory.

Estimate. A row is a ``json.loads`` of 250 bytes (4 us), its checks and numpy array (15 us), sharing and numbering (5
us), gzip (1 us): 25 us a request, 40,000 a second. A replayed request matches (6 us), cuts a run half of the time (3
us), reserves and evicts (10 us), publishes (6 us), ends (5 us): 30 us, 33,000 a second; the optimum asks its oracle and
takes pieces of runs: twice that, 60 us. The coding agents: 460 MB of JSON at 100 MB/s 5 s, the rest of the reading 5 s,
reuse 5 s, replay 49,334 * 60 us = 3 s: 18 s, 365 us a request, in 600 MiB.

Yardstick: for reading, gunzip and ``json.loads`` of every line; the replay has none but reading.
"""

from __future__ import annotations

import gzip
import json
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time

from benchmarks.micro.cell import Benchmark, Cell, Setup, Skipped, timed_cell
from benchmarks.micro.timing import time_repeated, timing_of
from benchmarks.peers.clocks import settle
from simulator.replay import ReplayOptions, replay
from simulator.reuse import measure_reuse
from simulator.sizes import parse_size
from simulator.traces import load, open_trace

__all__ = ["BENCHMARK"]

_CHAT = "mooncake_conversation_trace.jsonl.gz"
_AGENTS = "claude_code_weka.jsonl.xz"
_SHARE = "20%"
_ESTIMATES_US = {"lru": 30.0, "optimal": 60.0}
_REPEATS = 5
#: ``kvsim``, and what it took: the peak that a parent could read of its child starts from the parent's own.
_WATCHED = """
import sys
from pathlib import Path
from simulator.cli import main
code = main(sys.argv[1:])
print(Path("/proc/self/status").read_text(), file=sys.stderr)
sys.exit(code)
"""


def _measure(setup: Setup) -> Iterator[Cell]:
    chat, agents = setup.traces / _CHAT, setup.traces / _AGENTS
    wanted = [chat, agents] if setup.everything else [chat]
    missing = [path.name for path in wanted if not path.exists()]
    if missing:
        raise Skipped(f"{', '.join(missing)} not found; the traces are sought in KVSTORE_TRACES or ../shared/traces")
    yield from _chat(chat)
    if setup.everything:
        yield _agents(agents)


def _chat(path: Path) -> Iterator[Cell]:
    trace = load(open_trace(path))
    count = len(trace.requests)
    floor = time_repeated(lambda: _parse_lines(path), seconds=0.5)
    reading = time_repeated(lambda: load(open_trace(path)), seconds=1)
    yield timed_cell(
        "read mooncake conversation",
        reading,
        estimate=25,
        yardstick=floor.median_us,
        parts=count,
        more={"a second": count / reading.median_us * 1e6},
    )
    reuse = measure_reuse(trace.requests)
    for policy, estimate in _ESTIMATES_US.items():
        options = ReplayOptions(device_tokens=parse_size(_SHARE), policy=policy)
        settle()
        results = [replay(trace, options, reuse=reuse, stopwatch_s=process_time) for _ in range(1 + _REPEATS)][1:]
        timing = timing_of([result.wall_seconds * 1e9 for result in results])
        yield timed_cell(
            f"replay it, {policy}, {_SHARE} of its unique blocks",
            timing,
            estimate=estimate,
            parts=count,
            more={
                "a second": count / timing.median_us * 1e6,
                "token hit rate": results[0].token_hit_rate,
            },
        )


def _agents(path: Path) -> Cell:
    arguments = ["replay", str(path), "--device-tokens", _SHARE, "--policy", "lru", "--json", "-"]
    start_s, spent_s = perf_counter(), _children_s()
    done = subprocess.run([sys.executable, "-c", _WATCHED, *arguments], check=True, capture_output=True, text=True)
    wall_s, core_s = perf_counter() - start_s, _children_s() - spent_s
    result = json.loads(done.stdout)
    peak = re.search(r"VmHWM:\s*(\d+) kB", done.stderr)
    assert peak is not None, done.stderr
    return timed_cell(
        f"claude code end to end, 64 tokens a block, lru, {_SHARE}",
        timing_of([wall_s * 1e9]),
        estimate=365,
        parts=result["requests"],
        more={
            "a second": result["requests"] / wall_s,
            "token hit rate": result["token_hit_rate"],
            "wall s": wall_s,
            "CPU s": core_s,
            "replay alone s": result["wall_seconds"],
            "peak MiB": int(peak[1]) / 1024,
        },
    )


def _children_s() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def _parse_lines(path: Path) -> int:
    with gzip.open(path, "rb") as lines:
        return sum(1 for line in lines if json.loads(line))


BENCHMARK = Benchmark(
    unit="µs a request", yardstick="gunzip and json.loads of the lines, µs a request", measure=_measure
)
