"""Where do the peers live? In a virtual environment of their own: their pins never meet this repository's."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

__all__ = ["ensure_environment"]

_HERE = Path(__file__).parent
_TORCH = _HERE / "requirements-torch.txt"
_PEERS = _HERE / "requirements.txt"
_STAMP = "installed-requirements.sha256"


def ensure_environment(folder: Path) -> Path:
    """Have the pinned peers installed in ``folder``; returns the path of its Python.

    Does nothing where this very list was installed before. The first time takes minutes and 3 GB.

    Raises:
        subprocess.CalledProcessError: pip failed; it has said why.
    """
    python = folder / "bin" / "python"
    stamp = folder / _STAMP
    wanted = hashlib.sha256(_TORCH.read_bytes() + _PEERS.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="ascii") == wanted:
        return python
    print(f"installing the peers into {folder}: a few minutes", file=sys.stderr)
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(_TORCH)], check=True)
    subprocess.run([*pip, "--no-deps", "-r", str(_PEERS)], check=True)
    stamp.write_text(wanted, encoding="ascii")
    return python
