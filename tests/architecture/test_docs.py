"""A document that names a path or a symbol names one that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md"]
PATH = re.compile(r"`((?:kvstore|eviction|transfer|simulator|tests|benchmarks|deploy|docs)/[\w./*-]*)`")
SYMBOL = re.compile(r"`([A-Z][A-Za-z]*[a-z][A-Za-z]*)(?:\.(\w+))?(?:\(.*?\))?`")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_paths_exist(document: Path) -> None:
    missing = [name for name in PATH.findall(document.read_text()) if not list(ROOT.glob(name.rstrip("/")))]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_classes_exist(document: Path) -> None:
    sources = "\n".join(
        path.read_text()
        for name in ("kvstore", "eviction", "transfer", "simulator")
        for path in (ROOT / name).rglob("*.py")
    )
    for name, member in SYMBOL.findall(document.read_text()):
        assert re.search(rf"\bclass {name}\b", sources) or name.isupper(), f"{document.name} names {name}"
        if member:
            assert re.search(rf"\b(def {member}\b|{member}\b\s*[:=])", sources), (
                f"{document.name} names {name}.{member}"
            )


def test_every_make_target_explains_itself() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z][a-z-]*):", makefile, re.M)
    assert {"run", "test", "lint", "bench", "help"} <= set(targets)
    assert [name for name in targets if not re.search(rf"^{name}:.*## \S", makefile, re.M)] == []
