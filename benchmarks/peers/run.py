"""What does a prefix cache cost an engine: vLLM's, SGLang's, ours? The same work through all of them, in one run.

Estimate: README.md, beside this file.

    python benchmarks/peers/run.py            install the peers, measure, write the JSON, print the table
    python benchmarks/peers/run.py --table    print the table of the last run
    python benchmarks/peers/run.py --check    compare the last run with the goals; exit 1 if one is missed
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import subprocess
import sys
from pathlib import Path

from environment import ensure_environment
from goals import judge
from manager import MANAGERS
from results import Results, cpu_us, wall_us
from rounds import GROUPS, RoundLog, run_round
from table import markdown
from workload import PAGE_TOKENS

__all__ = ["main"]

_ROOT = Path(__file__).resolve().parents[2]
_TRACE = "mooncake_conversation_trace.jsonl.gz"


def main() -> int:
    """Do what the command line asks; the exit code."""
    asked = _arguments()
    if asked.check:
        return _check(Results.read(asked.results))
    if not asked.table:
        _measure(asked).write(asked.results)
    print(markdown(Results.read(asked.results), {"cpu": cpu_us, "wall": wall_us}[asked.clock]))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--table", action="store_true", help="only print the table of the results")
    what.add_argument("--check", action="store_true", help="only compare the results with the goals")
    parser.add_argument("--results", type=Path, default=_ROOT / "benchmarks" / "results" / "peers.json")
    parser.add_argument("--clock", choices=("cpu", "wall"), default="cpu", help="which time the table shows")
    parser.add_argument("--venv", type=Path, default=_ROOT / ".venvs" / "peers", help="where the peers are installed")
    parser.add_argument("--rounds", type=int, default=2, help="of which the better one counts")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS, metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument(
        "--traces",
        type=Path,
        default=Path(os.environ.get("KVSTORE_TRACES") or _ROOT.parent / "shared" / "traces"),
        help=f"folder with {_TRACE}",
    )
    return parser.parse_args()


def _measure(asked: argparse.Namespace) -> Results:
    python = ensure_environment(asked.venv)
    trace: Path = asked.traces / _TRACE
    skipped = {group: "not asked for" for group in GROUPS if group not in asked.only}
    if not trace.exists():
        skipped["trace"] = f"{_TRACE} is not in the folder of traces (KVSTORE_TRACES or ../shared/traces)"
        print(f"trace replay is skipped: {skipped['trace']}", file=sys.stderr)
    commit = _commit()  # before the rounds: what the first worker imports
    log = RoundLog()
    for number in range(asked.rounds):
        run_round(
            number,
            tuple(asked.only),
            python=python,
            seed=asked.seed,
            managers={name: spec.buffers for name, spec in MANAGERS.items()},
            trace=trace if trace.exists() else None,
            log=log,
        )
    for failure in log.failures:
        print(f"{failure.manager} failed at {failure.case} in round {failure.round}: {failure.reason}", file=sys.stderr)
    return Results(
        created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        commit=commit,
        machine={"cpu": _cpu_model(), "cores": os.cpu_count(), "load": round(os.getloadavg()[2], 2)},
        versions=log.versions,
        seed=asked.seed,
        page_tokens=PAGE_TOKENS,
        rounds=asked.rounds,
        skipped=skipped,
        failures=tuple(log.failures),
        measurements=tuple(log.measurements),
    )


def _check(results: Results) -> int:
    verdicts = list(judge(results))
    for verdict in verdicts:
        word = ("pass" if verdict.firm else "weak") if verdict.passed else "FAIL"
        found = "not measured"
        if verdict.found is not None:
            found = f"{verdict.found.better_round:.2f} in the better round, {verdict.found.of_lowest:.2f} of the lowest"
        print(f"{word}  {verdict.goal}  {verdict.bound}: {found}")
    missed = sum(not verdict.passed for verdict in verdicts)
    print(f"{len(verdicts) - missed} of {len(verdicts)} goals reached; weak: in one round only")
    return 1 if missed else 0


def _commit() -> str:
    """The commit measured, with ``+`` if our packages differ from it."""
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=_ROOT, capture_output=True, text=True, check=False)
    packages = ["kvstore", "eviction", "transfer"]
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *packages], cwd=_ROOT, check=False).returncode
    return (head.stdout.strip() or "unknown") + ("+" if changed else "")


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


if __name__ == "__main__":
    sys.exit(main())
