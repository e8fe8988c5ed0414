"""``kvstore`` says what works here."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import kvstore


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = "import sys; from kvstore.cli import main; sys.argv = ['kvstore', *sys.argv[1:]]; main()"
    return subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)


def test_the_doctor_says_what_is_there_and_how_fast_memory_moves() -> None:
    done = run("doctor")
    assert done.returncode == 0, done.stderr
    assert f"kvstore {kvstore.__version__}" in done.stdout
    speeds = [float(speed) for speed in re.findall(r"mem(?:cpy|cmp)\s+([\d.]+) GB/s", done.stdout)]
    assert len(speeds) == 2
    assert all(speed > 0 for speed in speeds)


@pytest.mark.parametrize("module", ["matplotlib", "zstandard"])
def test_the_doctor_names_what_an_optional_package_is_for(module: str) -> None:
    assert re.search(rf"^  {module} .*\(.+\)$", run("doctor").stdout, re.M)


def test_the_version_is_the_package_s() -> None:
    assert run("--version").stdout.strip() == f"kvstore {kvstore.__version__}"


def test_an_unknown_command_is_an_error() -> None:
    assert run("cure").returncode != 0
