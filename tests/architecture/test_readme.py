"""The README's example runs as it stands, and its table is what the last run against the peers measured."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.S)
    done = subprocess.run([sys.executable, "-c", example], check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_the_table_was_measured() -> None:
    shown = README.split("## How fast it is")[1].split("## Develop")[0]
    script = ROOT / "benchmarks" / "peers" / "run.py"
    made = subprocess.run([sys.executable, str(script), "--table"], capture_output=True, text=True, check=True).stdout
    rows = [line for line in shown.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    assert len(rows) > 10
    assert [row for row in rows if row not in made] == []
