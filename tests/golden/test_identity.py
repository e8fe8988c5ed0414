"""What is spelled in one process is spelled alike in all, today and after the next change: the file holds it.

A difference means that nothing which older processes stored is ever found again. If that is meant, the tags in
``kvstore/namespace.py`` and ``transfer/layout.py`` get a new version, and the file is written anew by
``python -m tests.golden.identity``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parent
_ROOT = _FOLDER.parents[1]


@pytest.mark.parametrize("hash_seed", ["0", "1", "random"])
def test_a_fresh_process_spells_what_the_file_says(hash_seed: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KVSTORE")}
    environment |= {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(_ROOT), "PYTHONIOENCODING": "utf-8"}
    printed = subprocess.run(
        [sys.executable, str(_FOLDER / "identity.py")], env=environment, capture_output=True, check=True, timeout=60
    )
    assert json.loads(printed.stdout) == json.loads((_FOLDER / "identity.json").read_text(encoding="utf-8"))
