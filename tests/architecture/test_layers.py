"""Who may import whom, and at what cost."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("eviction", "kvstore", "simulator", "transfer")
MAY_IMPORT = {
    "eviction": set(),
    "transfer": set(),
    "kvstore": {"eviction", "transfer"},
    "simulator": {"eviction", "kvstore", "transfer"},
}
#: The one place that may import a heavy dependency.
HOMES = {
    "fastapi": "kvstore/sidecar",
    "jax": "transfer/backends/jax_backend.py",
    "matplotlib": "simulator/report",
    "msgpack": "transfer/wire.py",
    "redis": "transfer/remote.py",
    "torch": "transfer/backends/torch_backend.py",
    "uvicorn": "kvstore/sidecar",
    "zstandard": "simulator/traces",
}
UNSAFE = {"marshal", "pickle", "shelve"}


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Top-level names of every import in the file, wherever it stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            assert node.module is not None
            found.add(node.module.split(".")[0])
    return found


ALL_SOURCES = [path for package in PACKAGES for path in sources(package)]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_lies_below_it(package: str) -> None:
    files = sources(package)
    assert files
    for path in files:
        ours = imports(path) & set(PACKAGES) - {package}
        assert ours <= MAY_IMPORT[package], f"{path} imports {ours - MAY_IMPORT[package]}"


def test_policies_lean_on_the_standard_library_only() -> None:
    for path in sources("eviction"):
        foreign = imports(path) - set(sys.stdlib_module_names) - {"eviction"}
        assert not foreign, f"{path} imports {foreign}"


def test_a_heavy_dependency_has_one_home() -> None:
    for path in ALL_SOURCES:
        for name in imports(path) & set(HOMES):
            assert str(path.relative_to(ROOT)).startswith(HOMES[name]), f"{path} imports {name}"


def test_nothing_can_run_what_it_reads() -> None:
    for path in ALL_SOURCES:
        assert not imports(path) & UNSAFE, path
        text = path.read_text()
        assert "allow_pickle" not in text, path
        assert "torch.load" not in text, path


def test_nothing_imports_tests_or_benchmarks() -> None:
    for path in ALL_SOURCES:
        assert not imports(path) & {"benchmarks", "tests"}, path


@pytest.mark.parametrize("package", PACKAGES)
def test_all_is_what_a_package_exports(package: str) -> None:
    public = "n for n, v in vars(package).items() if not n.startswith('_') and not isinstance(v, types.ModuleType)"
    names = set(run(f"import {package} as package, types; print(*({public}))").split())
    listed = run(f"import {package}; print(*{package}.__all__)").split()
    assert set(listed) - {"__version__"} == names
    assert len(listed) == len(set(listed))


def test_every_module_lists_its_public_names_first() -> None:
    for path in ALL_SOURCES:
        tree = ast.parse(path.read_text())
        if path.name in {"__init__.py", "__main__.py"} and len(tree.body) <= 1:
            continue
        names = [
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        ]
        if path.name != "__main__.py":
            assert names[:1] == ["__all__"], f"{path} does not begin with __all__"


@pytest.mark.parametrize("package", ["eviction", "kvstore", "transfer"])
def test_the_library_imports_with_numpy_alone(package: str) -> None:
    allowed = {"numpy", "xxhash", *PACKAGES}
    script = f"import sys, {package}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    loaded = set(run(script).split()) - set(sys.stdlib_module_names)
    heavy = {"fastapi", "jax", "matplotlib", "msgpack", "redis", "rich", "torch", "typer", "uvicorn", "zstandard"}
    assert not loaded & heavy
    assert {name for name in loaded if not name.startswith("_")} <= allowed | site_hooks()


def site_hooks() -> set[str]:
    """What this interpreter loads before any of our code: editable-install hooks and the like."""
    return set(run("import sys; print(*sorted({name.split('.')[0] for name in sys.modules}))").split())


def run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout
