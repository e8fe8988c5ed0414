"""The facade: begin requests, ask what is cached, look at the numbers, clear."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, final

from eviction import EvictionPolicy, LruPolicy
from kvstore.audit import audit
from kvstore.batch import SequenceBatch
from kvstore.block_allocator import BlockAllocator, PageSource
from kvstore.core import Core
from kvstore.counters import StoreStats
from kvstore.errors import ConfigError, InvalidRequest, KVStoreError, ResetRefused
from kvstore.eviction_log import EvictionLog
from kvstore.explain import Explanation, explain
from kvstore.names import chain_names, split_names
from kvstore.namespace import BlockFormat, Namespace, SymbolKind
from kvstore.prefix_tree import NAME_BYTES, Node, path_to, walk
from kvstore.prompt import Prompt
from kvstore.residency import Residency
from kvstore.sequence import Sequence
from transfer import PagePool

__all__ = ["KVStore"]

_TOKENS: Final = SymbolKind.TOKENS


@final
class KVStore:
    """Finds the KV of prompts that begin alike, and decides which pages keep it. Never waits, never touches a page's
    bytes.

    All methods may be called from any thread (one lock, held for microseconds); one sequence is used by one thread
    at a time.

    Args:
        device: the pool whose pages the store hands out.
        policy: order of eviction; least recently used by default.
        namespace: used where ``begin``, ``peek`` and the like are given none.
        allocator: hands out page ids, where an engine has a free list of its own; all ids of the pool by default.
        retained_page_count_max: pages that may stay cached when a request ends; all of the pool by default.
        now_ns: monotonic clock, in nanoseconds.

    Raises:
        ConfigError: settings that do not fit together.
    """

    __slots__ = ("_core", "_device", "namespace")

    def __init__(
        self,
        device: PagePool,
        *,
        policy: EvictionPolicy[Node] | None = None,
        namespace: Namespace | None = None,
        allocator: PageSource | None = None,
        retained_page_count_max: int | None = None,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        _check_parts(device, policy, namespace, allocator)
        allocator = BlockAllocator(device.page_count) if allocator is None else allocator
        if allocator.page_count > device.page_count:
            raise ConfigError(f"the allocator hands out {allocator.page_count} pages, the pool has {device.page_count}")
        retained = device.page_count if retained_page_count_max is None else retained_page_count_max
        if isinstance(retained, bool) or not isinstance(retained, int) or retained < 0:
            raise ConfigError(f"retained_page_count_max must be a whole number from 0, got {retained!r}")
        self._device = device
        self._core = Core(
            allocator,
            Residency(LruPolicy() if policy is None else policy, EvictionLog()),
            block_tokens=device.block_tokens,
            retained_count_max=retained,
            now_ns=now_ns,
        )
        self.namespace = namespace or Namespace(model="default", format=BlockFormat.of_tokens(device.block_tokens))
        self._check_fits(self.namespace)

    def __repr__(self) -> str:
        core = self._core
        cached, free = core.residency.cached_count, core.allocator.free_count
        pages = f"{self._device.page_count} pages of {core.block_tokens} tokens"
        return f"KVStore({pages}: {cached} cached, {free} free; {len(core.live)} running)"

    def begin(
        self,
        prompt: Prompt,
        *,
        namespace: Namespace | None = None,
        request_id: int | str | None = None,
        skip_read: bool = False,
        skip_write: bool = False,
    ) -> Sequence:
        """Start a request: find the longest cached prefix of its prompt and pin it.

        Args:
            namespace: whose KV this is; the store's own by default.
            request_id: the caller's name for the request, shown by ``explain`` and told to the policy.
            skip_read: find nothing, so that everything is computed; the result may still be published.
            skip_write: publish nothing; what is computed stays private and is freed at the end.

        Raises:
            InvalidRequest: the prompt is of another kind than the namespace's blocks.

        Cost: one dict look-up and one memcmp for each run passed, one copy of the page ids.
        """
        if type(prompt) is not Prompt or not (namespace is None or type(namespace) is Namespace):
            raise _wrong_types(prompt, namespace)
        space = self.namespace if namespace is None else namespace
        blocks = space.format
        # Plain tokens need no work; ``block_symbols`` would say so at the cost of a call.
        plain = prompt.kind is blocks.kind is _TOKENS and not prompt.media
        symbols = prompt.symbols if plain else prompt.block_symbols(blocks)
        core = self._core
        begun_ns = core.now_ns()
        if core.entered():
            core.check_usable()
        with core.lock:  # and the guard, written out: every request comes here
            try:
                if core.dropped:
                    core.sweep()
                root = core.residency.roots.get(space.digest)
                if root is None:
                    self._check_fits(space)
                    root = core.residency.root_of(space)
                return Sequence(core, root, prompt, symbols, request_id, skip_read, skip_write, begun_ns)
            except KVStoreError:
                raise
            except BaseException:
                core.break_off()
                raise

    def peek(self, prompt: Prompt, *, namespace: Namespace | None = None) -> int:
        """Leading tokens of ``prompt`` that are resident now, in whole blocks. Pins nothing: the answer may be old
        at once.
        """
        space, symbols = self._symbols(prompt, namespace)
        core = self._core
        core.check_usable()
        with core.lock:
            root = core.residency.roots.get(space.digest)
            return (
                0
                if root is None
                else core.residency.match(root, symbols, prompt.token_count // core.block_tokens) * core.block_tokens
            )

    def explain(self, prompt: Prompt, *, namespace: Namespace | None = None) -> Explanation:
        """Say block by block whether ``prompt`` hits and, where it does not, why. For people: O(tokens), not for the
        hot path.
        """
        space, symbols = self._symbols(prompt, namespace)
        self._core.check_usable()
        with self._core.lock:
            return explain(self._core.residency, prompt, symbols, space)

    def block_names(self, prompt: Prompt, *, namespace: Namespace | None = None) -> list[bytes]:
        """Names of the prompt's full blocks outside this process: 32 bytes each, the same in every process.

        Cost: 0.5 us for each block that nobody asked for before, outside the lock.
        """
        space, symbols = self._symbols(prompt, namespace)
        width = space.format.symbol_bytes
        full = prompt.token_count // space.format.block_tokens
        known = self._known_names(symbols, full, space)
        start = len(known) // NAME_BYTES
        rest = memoryview(symbols)[start * width : full * width]
        names = known + chain_names(known[-NAME_BYTES:] or space.digest, rest, width)
        if len(rest):
            self._keep_names(symbols, full, space, names)
        return split_names(names)

    def batch(self, sequences: Iterable[Sequence]) -> SequenceBatch:
        """Run these token sequences in step: one vectorised check a step for all that stay inside their page."""
        return SequenceBatch(self._core, tuple(sequences))

    def stats(self) -> StoreStats:
        """One consistent snapshot of counters and pages."""
        core = self._core
        core.check_usable()
        with core.lock, core.guard:
            core.sweep()
            counters, residency, allocator = core.counters, core.residency, core.allocator
            return StoreStats(
                policy=residency.policy.name,
                requests=counters.requests,
                queried_tokens=counters.queried_tokens,
                hit_tokens=counters.hit_tokens,
                resumed_tokens=counters.resumed_tokens,
                published_blocks=counters.published_blocks,
                duplicate_blocks=counters.duplicate_blocks,
                out_of_pages=counters.out_of_pages,
                ended_unreleased=counters.ended_unreleased,
                evicted_blocks={reason.value: count for reason, count in residency.log.block_counts.items()},
                page_count=allocator.page_count,
                free_pages=allocator.free_count,
                cached_pages=residency.cached_count,
                evictable_pages=residency.evictable_count,
                reserved_pages=allocator.page_count - allocator.free_count - residency.cached_count,
                running=len(core.live),
                nodes=residency.node_count,
                namespaces=len(residency.roots),
            )

    def audit(self) -> None:
        """Recompute every count and every owner of a page from scratch.

        Raises:
            AssertionError: an invariant is broken; the message says which.
        """
        self._core.check_usable()
        with self._core.lock:
            audit(self._core)

    def reset(self, *, force: bool = False) -> int:
        """Forget everything that is cached, in every namespace; returns how many blocks.

        Args:
            force: go on although sequences run. They are lost: they may only be released, and keep their pages until
                then, so that nothing is reused under a device that still writes.

        Raises:
            ResetRefused: sequences run and ``force`` is not set; nothing was changed.
        """
        core = self._core
        core.check_usable()
        with core.lock, core.guard:
            core.sweep()
            if core.live and not force:
                raise ResetRefused(running=len(core.live))
            residency = core.residency
            dropped = residency.cached_count
            freed, lost = residency.forget(now_ns=core.now_ns())
            core.allocator.give(freed)
            core.lost += lost
            core.interruption_count += 1
            return dropped

    def _symbols(self, prompt: Prompt, namespace: Namespace | None) -> tuple[Namespace, bytes]:
        if type(prompt) is not Prompt or not (namespace is None or type(namespace) is Namespace):
            raise _wrong_types(prompt, namespace)
        space = self.namespace if namespace is None else namespace
        self._check_fits(space)
        return space, prompt.block_symbols(space.format)

    def _check_fits(self, space: Namespace) -> None:
        if space.format.block_tokens != self._core.block_tokens:
            raise ConfigError(
                f"blocks of {space.format.block_tokens} tokens do not fit pages of {self._core.block_tokens}"
            )

    def _known_names(self, symbols: bytes, full: int, space: Namespace) -> bytes:
        names = b""
        self._core.check_usable()
        with self._core.lock:
            for node in self._path(symbols, full, space):
                names += node.names
                if len(node.names) < NAME_BYTES * len(node.pages):
                    break
        return names

    def _keep_names(self, symbols: bytes, full: int, space: Namespace, names: bytes) -> None:
        self._core.check_usable()
        with self._core.lock:
            for node in self._path(symbols, full, space):
                node.names = names[NAME_BYTES * node.first_block : NAME_BYTES * node.end_block]

    def _path(self, symbols: bytes, full: int, space: Namespace) -> list[Node]:
        root = self._core.residency.roots.get(space.digest)
        return [] if root is None else path_to(walk(root, symbols, full * root.symbol_bytes, root.symbol_bytes)[0])


def _check_parts(device: object, policy: object, namespace: object, allocator: object) -> None:
    if not isinstance(device, PagePool):
        raise ConfigError(f"device must be a page pool, transfer.VirtualPagePool(...) say; got {type(device).__name__}")
    if isinstance(policy, type) or not isinstance(policy, EvictionPolicy | None):
        raise ConfigError(f"policy must be an EvictionPolicy, eviction.make_policy('lru') say; got {policy!r}")
    if not isinstance(namespace, Namespace | None):
        raise ConfigError(f"namespace must be a Namespace, got {type(namespace).__name__}")
    if not isinstance(allocator, PageSource | None):
        raise ConfigError(f"allocator must be a PageSource, got {type(allocator).__name__}")


def _wrong_types(prompt: object, namespace: object) -> InvalidRequest:
    if type(prompt) is not Prompt:
        return InvalidRequest(f"need a Prompt, got {type(prompt).__name__}; make one with Prompt.of_tokens(...)")
    return InvalidRequest(f"need a Namespace, got {type(namespace).__name__}")
