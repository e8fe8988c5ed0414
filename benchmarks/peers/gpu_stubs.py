"""How can SGLang's cache be imported without a GPU? With stand-ins for modules that the measured code never calls.

A stand-in is a module whose attributes can be called, subscripted, used as decorator or base class, and do nothing.
Nothing of the peer itself is patched.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence

__all__ = ["prepare_sglang"]

#: Kernels, media decoders and model hubs that SGLang's modules import on their way to the cache.
_NOT_NEEDED = (
    "blobfile",
    "compressed_tensors",
    "datasets",
    "decord",
    "flashinfer",
    "gguf",
    "interegular",
    "kernels",
    "modelscope",
    "nvtx",
    "outlines",
    "py_spy",
    "pynvml",
    "sentencepiece",
    "sgl_kernel",
    "soundfile",
    "timm",
    "torch_memory_saver",
    "torchaudio",
    "torchcodec",
    "torchvision",
    "xformers",
)


def prepare_sglang() -> None:
    """Make ``sglang.srt.mem_cache`` importable; call it before the first import of ``sglang``."""
    missing = frozenset(name for name in _NOT_NEEDED if importlib.util.find_spec(name) is None)
    sys.meta_path.append(_StandInFinder(missing))
    _skip_front_end()


def _skip_front_end() -> None:
    """Register ``sglang`` as a bare package: its ``__init__`` would import the front-end language."""
    spec = importlib.util.find_spec("sglang")
    if spec is None:
        raise ModuleNotFoundError("sglang is not installed", name="sglang")
    package = types.ModuleType("sglang")
    package.__path__ = list(spec.submodule_search_locations or ())
    package.__spec__ = spec
    sys.modules["sglang"] = package


class _Inert:
    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __call__(self, *args: object, **_: object) -> object:
        return args[0] if args and callable(args[0]) else self  # a bare decorator leaves its function alone

    def __getattr__(self, name: str) -> object:
        return _inert_attribute(name)

    def __getitem__(self, key: object) -> object:
        return self

    def __contains__(self, key: object) -> bool:
        return False

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return (object,)

    def __or__(self, other: object) -> object:
        return self

    __ror__ = __or__


class _StandIn(types.ModuleType):
    def __getattr__(self, name: str) -> object:
        return _inert_attribute(name)


class _StandInFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, roots: frozenset[str]) -> None:
        self._roots = roots

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: types.ModuleType | None = None, /
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in self._roots:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = _StandIn(spec.name)
        module.__path__ = []
        module.__version__ = "0.0"  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def _inert_attribute(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(name)
    return _Inert()
