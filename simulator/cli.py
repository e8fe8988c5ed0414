"""``kvsim``: the simulator on the command line.

Whatever is slow to import is imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from eviction import OptimalPolicy, UnknownPolicyError, policy_names
from simulator.errors import SimulatorError
from simulator.reading import Partial, ReadingOptions
from simulator.result import HitRule, ReplayResult, results_to_json
from simulator.terminal import (
    STDOUT,
    check_distinct,
    check_target,
    discard_standard_output,
    progress_bar,
    show,
    waiting,
    write_text,
)

if TYPE_CHECKING:
    from simulator.report import CurvePoint
    from simulator.reuse import Reuse
    from simulator.traces.record import LoadedTrace

__all__ = ["main"]

_INTERRUPTED = 130  # what shells expect of a program that was interrupted
_CURVE_REQUESTS_MAX = 20_000  # beyond, the optimum's curve would take longer than all the rest
_CURVE_POINTS = 8

#: What the parser says, in the words of whichever library checks for it, and what we say.
_PARSER_WORDS = (
    (r"^Invalid value for '([^']+)': ", r"\1: "),
    (r"Value error, ", ""),
    (r"Input should be greater than or equal to (\d+)|\S+ is not in the range x>=(\d+)\.", r"must be at least \1\2"),
    (r"Input should be a valid integer.*|\S+ is not a valid int.*", "must be a whole number"),
)

#: What the parser of the command line raises; typer has no name for it that all its versions share.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

_app = typer.Typer(
    name="kvsim",
    help="Replay real LLM traffic through the real KV-cache store and see what it would have hit.",
    epilog="Exit codes: 0 done, 1 error, 2 a broken invariant.",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,  # plain help prints in half the time
    pretty_exceptions_enable=False,
)


class TimeModel(StrEnum):
    """How time passes in a replay."""

    NONE = "none"  #: it does not: a request ends before the next begins


class CommandError(SimulatorError):
    """Options that do not go together, or ask for what is not there."""


_Trace = Annotated[
    str,
    typer.Argument(
        metavar="TRACE",
        help="A trace file (plain, .gz, .xz or .zst), - for standard input, or workload:NAME?param=value.",
    ),
]
_Format = Annotated[str | None, typer.Option("--format", metavar="NAME", help="The file's format, if not detected.")]
_IdTokens = Annotated[
    int | None,
    typer.Option("--id-tokens", min=1, metavar="N", help="Tokens that one id stands for, if the file does not say."),
]
_BlockTokens = Annotated[
    int | None, typer.Option("--block-tokens", min=1, metavar="N", help="Tokens per block.  [default: the trace's]")
]
_Partial = Annotated[
    Partial, typer.Option("--partial", help="Count a hashed trace's started last block, or drop it as engines do.")
]
_Repair = Annotated[bool, typer.Option("--repair", help="Mend rows whose ids do not fit their length; says how many.")]
_Rechain = Annotated[bool, typer.Option("--rechain", help="The ids name a block's own tokens: name blocks by path.")]
_Limit = Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="Only the first N requests.")]
_Seed = Annotated[
    int | None, typer.Option("--seed", min=0, metavar="N", help="Seed of all that is drawn.  [default: 0]")
]
_Users = Annotated[
    int | None, typer.Option("--users", min=1, metavar="N", help="Session traces: N users, one session each at a time.")
]
_Spread = Annotated[
    str | None, typer.Option("--spread", metavar="SPAN", help="Session traces: sessions start within a span, as 90m.")
]
_Json = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Also write JSON to FILE; - for standard output, alone.")
]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No tables, no progress.")]
_NoProgress = Annotated[bool, typer.Option("--no-progress", help="No progress bar, even on a terminal.")]


@_app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from kvstore import __version__  # noqa: PLC0415

        typer.echo(f"kvsim {__version__}")
        raise typer.Exit


@_app.command()
def traces() -> None:
    """List the trace formats and the built-in workloads."""
    from simulator.tables import choices_table  # noqa: PLC0415
    from simulator.traces import formats  # noqa: PLC0415
    from simulator.workloads import workloads  # noqa: PLC0415

    recipes = {
        f"workload:{item.name}": f"{item.description} [{', '.join(f'{p.name}={p.default}' for p in item.parameters)}]"
        for item in workloads()
    }
    show(choices_table("format", {item.name: item.summary for item in formats()}), choices_table("workload", recipes))


@_app.command()
def describe(
    trace: _Trace,
    format: _Format = None,  # noqa: A002 - the option's name
    id_tokens: _IdTokens = None,
    block_tokens: _BlockTokens = None,
    partial: _Partial = Partial.COUNT,
    repair: _Repair = False,
    rechain: _Rechain = False,
    limit: _Limit = None,
    seed: _Seed = None,
    users: _Users = None,
    spread: _Spread = None,
    json: _Json = None,
    quiet: _Quiet = False,
    no_progress: _NoProgress = False,
) -> None:
    """Describe a trace: lengths, arrivals, reuse, ceiling."""
    from simulator.describe import describe as describe_trace  # noqa: PLC0415
    from simulator.tables import description_tables  # noqa: PLC0415

    check_target(json)
    check_distinct(trace, {"--json": json})
    reading = ReadingOptions(
        format=format,
        id_tokens=id_tokens,
        block_tokens=block_tokens,
        partial=partial,
        repair=repair,
        rechain=rechain,
        limit=limit,
        seed=seed,
        users=users,
        spread=spread,
    )
    with waiting(f"reading {trace}", enabled=not (quiet or no_progress)):
        description = describe_trace(reading.read(trace))
    if json is not None:
        write_text(json, description.to_json())
    if not quiet and json != STDOUT:
        show(description_tables(description))


@_app.command()
def replay(
    trace: _Trace,
    device_tokens: Annotated[
        list[str] | None,
        typer.Option(
            "--device-tokens",
            metavar="SIZE",
            help="Device tier: tokens as 4M (K, M, G are 2^10, 2^20, 2^30), or a share of the unique blocks as 5%.  "
            "[default: 5%]",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME,...",
            help=f"Eviction policies, each replayed in turn: {', '.join(policy_names())}, or {OptimalPolicy.name}, the "
            "offline optimum.  [default: lru]",
        ),
    ] = None,
    hit_rule: Annotated[
        HitRule, typer.Option("--hit-rule", help="Count every matched block, or leave the last token to compute.")
    ] = HitRule.TRACE,
    time: Annotated[  # noqa: ARG001 - the only choice there is
        TimeModel, typer.Option("--time", help="none: requests run one after another, nothing takes time.")
    ] = TimeModel.NONE,
    format: _Format = None,  # noqa: A002 - the option's name
    id_tokens: _IdTokens = None,
    block_tokens: _BlockTokens = None,
    partial: _Partial = Partial.COUNT,
    repair: _Repair = False,
    rechain: _Rechain = False,
    limit: _Limit = None,
    seed: _Seed = None,
    users: _Users = None,
    spread: _Spread = None,
    json: _Json = None,
    report: Annotated[
        str | None, typer.Option("--report", metavar="FILE.html", help="Write a self-contained HTML report.")
    ] = None,
    quiet: _Quiet = False,
    no_progress: _NoProgress = False,
) -> None:
    """Replay a trace through the store and count what it hits."""
    from simulator.replay import ReplayOptions, check_policy  # noqa: PLC0415
    from simulator.replay import replay as replay_trace  # noqa: PLC0415
    from simulator.reuse import measure_reuse  # noqa: PLC0415
    from simulator.sizes import parse_size  # noqa: PLC0415
    from simulator.tables import replay_tables  # noqa: PLC0415

    if device_tokens is not None and len(device_tokens) > 1:
        raise CommandError("--device-tokens takes one size, as --policy compares policies at one size")
    policies = list(dict.fromkeys(name.strip() for name in ",".join(policy or ["lru"]).split(",")))
    for name in policies:
        check_policy(name)
    size = parse_size((device_tokens or ["5%"])[0])
    _check_outputs(trace, json, report)
    reading = ReadingOptions(
        format=format,
        id_tokens=id_tokens,
        block_tokens=block_tokens,
        partial=partial,
        repair=repair,
        rechain=rechain,
        limit=limit,
        seed=seed,
        users=users,
        spread=spread,
    )
    chatty = not (quiet or no_progress)
    with waiting(f"reading {trace}", enabled=chatty):
        loaded = reading.read(trace)
        reuse = measure_reuse(loaded.requests, hit_rule=hit_rule)
    results = []
    for name in policies:
        options = ReplayOptions(device_tokens=size, policy=name, hit_rule=hit_rule, reading=reading.record())
        with progress_bar(name, len(loaded.requests), enabled=chatty) as progress:
            results.append(replay_trace(loaded, options, reuse=reuse, progress=progress))
    if json is not None:
        write_text(json, results_to_json(results))
    if report is not None:
        _write_report(report, results, loaded, reuse, chatty=chatty)
    if not quiet and json != STDOUT:
        show(replay_tables(results))


def _check_outputs(trace: str, json: str | None, report: str | None) -> None:
    check_target(json)
    check_distinct(trace, {"--json": json, "--report": report})
    if report is None:
        return
    from simulator.report import require_plots  # noqa: PLC0415

    if report == STDOUT:
        raise CommandError("--report needs a file's name")
    check_target(report)
    require_plots()


def _write_report(
    path: str, results: Sequence[ReplayResult], trace: LoadedTrace, reuse: Reuse, *, chatty: bool
) -> None:
    from simulator.report import curve_capacities, optimum_point, render_report  # noqa: PLC0415

    optimum: list[CurvePoint] = []
    if len(trace.requests) <= _CURVE_REQUESTS_MAX:
        own = results[0].device.capacity_tokens // trace.block_tokens
        capacities = curve_capacities(point_count=_CURVE_POINTS, unique_blocks=trace.unique_blocks, include=[own])
        with progress_bar("optimum at other sizes", len(capacities), enabled=chatty) as progress:
            for done, blocks in enumerate(capacities):
                if progress is not None:
                    progress(done)
                optimum.append(optimum_point(trace, reuse, capacity_blocks=blocks))
    with waiting("drawing the report", enabled=chatty):
        write_text(path, render_report(results, trace=trace, reuse=reuse, optimum=optimum))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``kvsim`` and return its exit code: 0 done, 1 error, 2 a broken invariant.

    Args:
        arguments: without the program's name; those of the process by default.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = _app(args=given or ["--help"], prog_name="kvsim", standalone_mode=False)
    except (SimulatorError, UnknownPolicyError) as error:
        return _fail(str(error))
    except _UsageError as error:
        return _fail(_reworded(error.format_message()))  # type: ignore[attr-defined]
    except AssertionError as error:
        return _fail(f"a broken invariant, please report it: {error}", code=2)
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except BrokenPipeError:
        discard_standard_output()
        return 1
    except OSError as error:  # of the help, which the parser prints
        discard_standard_output()
        return _fail(f"standard output: cannot be written: {error.strerror}")
    if code == _INTERRUPTED:  # which the parser may have caught first
        return _fail("interrupted", code=_INTERRUPTED)
    return code if isinstance(code, int) else 0


def _reworded(problem: str) -> str:
    for theirs, ours in _PARSER_WORDS:
        problem = re.sub(theirs, ours, problem)
    return problem


def _fail(problem: str, *, code: int = 1) -> int:
    """Say in one line on standard error what is wrong."""
    if sys.stderr is not None:
        print("kvsim: error:", " ".join(problem.split()), file=sys.stderr)
    return code
