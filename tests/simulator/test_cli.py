"""``kvsim`` as its users meet it: what it prints, where, and how it ends."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eviction import policy_names
from kvstore import __version__
from simulator.cli import main
from simulator.describe import describe
from simulator.result import HIT_DEFINITION, ReplayResult
from simulator.traces import formats, load, open_trace
from simulator.workloads import workloads

ROWS = [
    {"timestamp": 0, "input_length": 1_500, "output_length": 10, "hash_ids": [7, 8, 9]},
    {"timestamp": 1_000, "input_length": 1_024, "output_length": 10, "hash_ids": [7, 8]},
    {"timestamp": 2_000, "input_length": 600, "output_length": 10, "hash_ids": [1, 2]},
    {"timestamp": 3_000, "input_length": 1_500, "output_length": 10, "hash_ids": [7, 8, 9]},
]
TEXT = "".join(json.dumps(row) + "\n" for row in ROWS)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.jsonl"
    path.write_text(TEXT)
    return str(path)


def kvsim(*arguments: str, stdin: str = "", before: str = "") -> subprocess.CompletedProcess[str]:
    """Run in a process of its own, where imports and pipes are those of a user."""
    script = f"import sys; {before}\nfrom simulator.cli import main\nsys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", script, *arguments], input=stdin, capture_output=True, text=True, check=False, timeout=60
    )


def test_replay_prints_a_row_a_policy_the_ceiling_and_what_a_hit_is(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", trace, "--device-tokens", "1K", "--policy", "lru,optimal"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line}
    assert rows["lru"][1:6] == ["2", "20.00", "%", "22.15", "%"]
    assert rows["optimal"][1:6] == ["4", "40.00", "%", "44.29", "%"]
    assert rows["infinite"][2:7] == ["5", "50.00", "%", "54.58", "%"]
    assert "4 requests, 4,624 input tokens, 10 accesses to 5 blocks of 512 tokens" in out
    assert "1,024 tokens (1K) = 2 blocks; hit rule: trace" in out
    assert " ".join(HIT_DEFINITION.split()) in " ".join(out.split())


def test_a_json_file_holds_the_result_and_the_options(trace: str, tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    arguments = ["--device-tokens", "50%", "--hit-rule", "serving", "--partial", "drop", "--limit", "3", "--seed", "5"]
    assert main(["replay", trace, *arguments, "--json", str(target)]) == 0
    record = json.loads(target.read_text())
    result = ReplayResult.from_json(target.read_text())
    assert record["options"] == {
        "format": None,
        "id_tokens": None,
        "block_tokens": None,
        "partial": "drop",
        "repair": False,
        "rechain": False,
        "limit": 3,
        "users": None,
        "spread": None,
        "device_tokens": "50%",
        "policy": "lru",
        "hit_rule": "serving",
    }
    assert (result.requests, result.seed, result.version) == (3, 5, __version__)
    assert (result.block_accesses, result.unique_blocks) == (5, 3)


def test_json_to_standard_output_stands_alone(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", trace, "--json", "-", "--policy", "optimal,lru", "--policy", "optimal,fifo"]) == 0
    out, err = capsys.readouterr()
    assert [run["policy"] for run in json.loads(out)["runs"]] == ["optimal", "lru", "fifo"]
    assert err == ""


def test_quiet_says_nothing(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["describe", trace], ["replay", trace]):
        assert main([*command, "--quiet", "--json", str(tmp_path / "out.json")]) == 0
        assert capsys.readouterr() == ("", "")
        assert json.loads((tmp_path / "out.json").read_text())


def test_two_runs_write_the_same_bytes_but_for_the_wall_time(capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for _ in range(2):
        assert main(["replay", "workload:chat?requests=300", "--seed", "4", "--json", "-"]) == 0
        lines = capsys.readouterr().out.splitlines()
        texts.append([line for line in lines if '"wall_seconds"' not in line and '"requests_per_second"' not in line])
    assert texts[0] == texts[1]
    assert len(texts[0]) == len(lines) - 2


def test_the_seed_selects_a_workloads_draws_and_is_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    def run(trace: str, *arguments: str) -> dict[str, object]:
        assert main(["replay", trace, *arguments, "--json", "-"]) == 0
        record: dict[str, object] = json.loads(capsys.readouterr().out)
        return {key: record[key] for key in ("trace", "trace_digest", "seed")}

    plain, seeded = run("workload:chat?requests=50"), run("workload:chat?requests=50", "--seed", "4")
    assert seeded == run("workload:chat?requests=50&seed=4")
    assert (plain["seed"], seeded["seed"]) == (0, 4)
    assert seeded["trace"] == "workload:chat?requests=50&seed=4"
    assert plain["trace_digest"] != seeded["trace_digest"]


def test_standard_input_is_a_trace(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert main(["replay", "-", "--device-tokens", "100%", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["hit_blocks"] == 5


def test_describe_prints_tables_and_writes_the_description(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "description.json"
    assert main(["describe", trace, "--json", str(target)]) == 0
    assert target.read_text() == describe(load(open_trace(trace))).to_json()
    out = capsys.readouterr().out
    for words in (
        "input tokens",
        "4,624",
        "arrivals",
        "ceiling, token hit rate",
        "54.58 %",
        "reuse distance",
        "LRU of",
    ):
        assert words in out
    assert " ".join(HIT_DEFINITION.split()) in " ".join(out.split())


def test_describe_takes_a_trace_of_lengths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("num_prefill_tokens,num_decode_tokens\n10,2\n20,3\n")
    assert main(["describe", str(path)]) == 0
    out = capsys.readouterr().out
    assert "input tokens" in out
    assert "lengths only" in out
    assert "ceiling" not in out


def test_traces_lists_every_format_and_workload(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["traces"]) == 0
    words = capsys.readouterr().out.split()
    assert {item.name for item in formats()} <= set(words)
    assert {f"workload:{item.name}" for item in workloads()} <= set(words)


def terminal_output(*arguments: str) -> bytes:
    """What the command writes to a terminal that is its standard error."""
    reader, terminal = pty.openpty()
    try:
        with os.fdopen(reader, "rb", buffering=0) as screen:
            subprocess.run(
                [sys.executable, "-m", "simulator", *arguments], stdout=subprocess.PIPE, stderr=terminal, check=True
            )
            os.write(terminal, b"\0")  # so that there is something to read
            return screen.read(1 << 16).rstrip(b"\0")
    finally:
        os.close(terminal)


def test_progress_shows_on_a_terminal_unless_it_is_unwanted(trace: str) -> None:
    shown = terminal_output("replay", trace, "--policy", "optimal")
    assert b"reading" in shown
    assert b"optimal" in shown
    assert b"4/4" in shown
    for unwanted in ("--no-progress", "--quiet"):
        assert terminal_output("replay", trace, unwanted) == b""


def test_standard_input_is_named_in_errors_and_one_is_no_plural(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    assert main(["replay", "-"]) == 1
    assert capsys.readouterr().err == "kvsim: error: standard input: holds no rows\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"input_length": 9, "hash_ids": [1]}')))
    assert main(["replay", "-"]) == 0
    out = capsys.readouterr().out
    assert "1 request, 9 input tokens, 1 access to 1 block of 512 tokens" in out
    assert "512 tokens = 1 block;" in out


def test_a_report_is_written(trace: str, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    assert main(["replay", trace, "--report", str(target), "--quiet"]) == 0
    assert target.read_text().startswith("<!DOCTYPE html>")


def test_without_matplotlib_a_report_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    done = kvsim("replay", "-", "--report", str(tmp_path / "r.html"), before="sys.modules['matplotlib'] = None")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "kvsim: error: the HTML report needs matplotlib: pip install matplotlib\n"


BROKEN = TEXT + '{"timestamp": 4000, "input_length": "many", "output_length": 1, "hash_ids": [1]}\n'
SHORT = TEXT + '{"timestamp": 4000, "input_length": 9000, "output_length": 1, "hash_ids": [1]}\n'


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["replay", "absent.jsonl"], ["absent.jsonl", "No such file"]),
        (["replay", "{broken}"], ["broken.jsonl:5:", "input_length"]),
        (["replay", "{short}"], ["short.jsonl:5:", "hash_ids", "9000"]),
        (["describe", "{broken}"], ["broken.jsonl:5:", "input_length"]),
        (["replay", "{trace}", "--format", "moncake"], ["moncake", "did you mean 'mooncake'"]),
        (["replay", "{trace}", "--policy", "lru,optimum"], ["optimum", "did you mean 'optimal'", *policy_names()]),
        (["replay", "{trace}", "--policy", ""], ["policy ''"]),
        (["replay", "workload:chatt"], ["chatt", "did you mean 'chat'"]),
        (["replay", "workload:chat?request=5"], ["request", "did you mean 'requests'"]),
        (["replay", "workload:chat?seed=3", "--seed", "4"], ["workload:chat?seed=3", "--seed 4"]),
        (["describe", "workload:chat?seed=0", "--seed", "0"], ["seed already"]),
        (["replay", "workload:chat", "--limit", "5"], ["--limit", "trace files", "workload:chat?requests=5"]),
        (["replay", "workload:chat", "--block-tokens", "64"], ["workload:chat?block_tokens=64"]),
        (["replay", "workload:chat?rate=2", "--block-tokens", "64"], ["workload:chat?rate=2&block_tokens=64"]),
        (["replay", "workload:chat?rate=2", "--repair"], ["--repair", "trace files", "workload:chat?requests"]),
        (["replay", "{trace}", "--device-tokens", "4MB"], ["4MB", "4M", "5%"]),
        (["replay", "{trace}", "--device-tokens", "1K", "--device-tokens", "2K"], ["--device-tokens", "one size"]),
        (["replay", "{trace}", "--device-tokens", "100"], ["no block of 512 tokens"]),
        (["replay", "{trace}", "--block-tokens", "500"], ["500", "512"]),
        (["replay", "{trace}", "--block-tokens", "131072"], ["trace.jsonl", "block_tokens", "65536"]),
        (["replay", "{trace}", "--time", "virtual"], ["--time", "virtual", "none"]),
        (
            ["replay", "{trace}", "--hit-rule", "exact"],
            ["error: --hit-rule: 'exact' is not one of", "trace", "serving"],
        ),
        (["replay", "{trace}", "--users", "2", "--spread", "5m"], ["--users", "--spread"]),
        (["replay", "{trace}", "--spread", "soon"], ["soon", "90m"]),
        (["replay", "{trace}", "--limit", "0"], ["--limit: must be at least 1\n"]),
        (["replay", "{trace}", "--users", "few"], ["--users: must be a whole number\n"]),
        (["replay", "{trace}", "--polcy", "lru"], ["--polcy", "--policy"]),
        (["replay", "{trace}", "--json", "{absent}/out.json"], ["absent", "no folder"]),
        (["replay", "{trace}", "--report", "{absent}/out.html"], ["absent", "no folder"]),
        (["replay", "{trace}", "--report", "-"], ["--report"]),
        (["describe", "{trace}", "--json", "{folder}"], ["is a folder"]),
        (["replay", "{lengths}"], ["lengths.csv", "lengths only", "kvsim describe"]),
        (["replay"], ["TRACE"]),
        (["replya"], ["replya"]),
    ],
)
def test_an_error_is_one_line_that_names_what_is_wrong(
    arguments: list[str], fragments: list[str], trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.jsonl").write_text(BROKEN)
    (tmp_path / "short.jsonl").write_text(SHORT)
    (tmp_path / "lengths.csv").write_text("num_prefill_tokens,num_decode_tokens\n10,2\n")
    places = {
        "trace": trace,
        "broken": str(tmp_path / "broken.jsonl"),
        "short": str(tmp_path / "short.jsonl"),
        "lengths": str(tmp_path / "lengths.csv"),
        "absent": str(tmp_path / "absent"),
        "folder": str(tmp_path),
    }
    assert main([argument.format(**places) for argument in arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("kvsim: error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    for fragment in fragments:
        assert fragment in err


@pytest.mark.parametrize("link", ["same", "symbolic", "hard", "dotted"])
@pytest.mark.parametrize("option", ["--json", "--report"])
def test_an_output_never_overwrites_the_trace(option: str, link: str, trace: str, tmp_path: Path) -> None:
    target = {"same": Path(trace), "dotted": tmp_path / "." / ".." / tmp_path.name / "trace.jsonl"}.get(link)
    if target is None:
        target = tmp_path / "link.jsonl"
        (target.symlink_to if link == "symbolic" else target.hardlink_to)(trace)
    done = kvsim("replay", trace, option, str(target))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"kvsim: error: {target}: {option} and TRACE are the same file\n"
    assert Path(trace).read_text() == TEXT


def test_an_output_never_overwrites_the_file_that_standard_input_reads(trace: str) -> None:
    with Path(trace).open() as file:
        done = subprocess.run(
            [sys.executable, "-m", "simulator", "describe", "-", "--json", trace],
            stdin=file,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "--json and TRACE are the same file" in done.stderr
    assert Path(trace).read_text() == TEXT


def test_two_outputs_are_two_files(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out.html"
    assert main(["replay", trace, "--json", str(target), "--report", str(tmp_path / "." / "out.html")]) == 1
    assert "--report and --json are the same file" in capsys.readouterr().err
    assert not target.exists()


def test_repair_mends_what_is_refused_otherwise_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "short.jsonl"
    path.write_text(SHORT)
    assert main(["replay", str(path), "--repair"]) == 0
    assert "warning: rows with a prompt longer than their ids, cut to what the ids cover: 1" in capsys.readouterr().out


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"kvsim {__version__}\n"
    assert main([]) == 0
    bare = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == bare
    assert main(["-h"]) == 0
    assert capsys.readouterr().out == bare
    assert "SLO" not in bare
    for words in ("traces", "describe", "replay", "Exit codes: 0 done, 1 error, 2"):
        assert words in bare
    assert main(["replay", "--help"]) == 0
    text = capsys.readouterr().out
    assert main(["replay", "-h"]) == 0
    assert capsys.readouterr().out == text
    assert "virtual" not in text
    for option in (
        *("--format", "--block-tokens", "--device-tokens", "--policy", "--hit-rule", "--partial", "--limit", "--seed"),
        *("--users", "--spread", "--json", "--report", "--quiet", "--no-progress", "--time"),
    ):
        assert option in text
    for name in (*policy_names(), "optimal"):
        assert name in text.split("--policy")[1].split("--hit-rule")[0]


def test_help_loads_nothing_slow() -> None:
    slow = "{'numpy', 'matplotlib', 'rich', 'simulator.replay'}"
    script = f"import sys\nfrom simulator.cli import main\nmain(['--help'])\nprint(sorted({slow} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_module_runs_as_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "simulator", "replay", "nowhere.jsonl"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


def test_a_broken_invariant_ends_with_two() -> None:
    # No input breaks one, so the audit is made to fail; in a process of its own, where it harms no other test.
    fault = "def audit(store): raise AssertionError('INV-1: pages\\nare lost')"
    fault = f"import kvstore\n{fault}\nkvstore.KVStore.audit = audit"
    done = kvsim("replay", "workload:chat?requests=20", before=fault)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "kvsim: error: a broken invariant, please report it: INV-1: pages are lost\n"


def test_a_reader_that_leaves_is_no_drama() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "simulator", "traces"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 1


@pytest.mark.parametrize(
    ("shell", "words"),
    [
        ("{kvsim} traces >&-", "standard output is closed"),
        ("{kvsim} describe {trace} --json - >&-", "standard output is closed"),
        ("{kvsim} traces >/dev/full", "standard output: cannot be written: No space left on device"),
        ("{kvsim} replay {trace} --json - >/dev/full", "standard output: cannot be written: No space left on device"),
        ("{kvsim} --help >/dev/full", "standard output: cannot be written: No space left on device"),
        ("{kvsim} --version >/dev/full", "standard output: cannot be written: No space left on device"),
        ("PYTHONIOENCODING=ascii {kvsim} replay {trace}", "standard output: its encoding ascii has no"),
    ],
)
def test_an_output_that_cannot_be_written_is_one_line(shell: str, words: str, trace: str) -> None:
    command = shell.format(kvsim=f"{sys.executable} -m simulator", trace=trace)
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"kvsim: error: {words}")
    assert done.stderr.count("\n") == 1


def test_closed_streams_that_nothing_is_written_to_do_no_harm(trace: str, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    for redirection in (">&-", "2>&-"):
        command = f"{sys.executable} -m simulator describe {trace} --quiet --json {target} {redirection}"
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert json.loads(target.read_text())


def test_an_interrupt_ends_with_one_line() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "simulator", "describe", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        # More than a pipe holds: once it is written, the command is reading and waits for more.
        process.stdin.write(TEXT.encode() * 5_000)
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        # A signal between two reads of one buffer is seen when the buffer is full or the input ends.
        process.stdin.close()
        assert process.wait(timeout=60) == 130
        assert process.stderr.read() == b"kvsim: error: interrupted\n"
