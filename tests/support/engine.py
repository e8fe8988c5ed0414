"""A tiny engine over a numpy pool: it writes the KV of every token that it computes and checks all that it reuses.

What it writes for a token is a *stamp*: bytes that depend on the namespace's fields, on all tokens up to this one and
on the media under them, differently for each layer, K and V. Pages are poisoned when they are reserved. So KV that is
foreign, stale or not written yet can't pass for right.

``tests.support.stamps`` stamps whole pages; here it goes token by token, so that a page can be written in part. As in a
real engine, the last sampled token is known but has no KV: the forward pass over it comes one step later.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self
from weakref import WeakSet

import numpy as np

from eviction import EvictionPolicy
from kvstore import Commit, KVStore, MediaSpan, Namespace, OutOfPages, Prompt
from kvstore import Sequence as StoreSequence
from transfer import Layout, NumpyPagePool

__all__ = ["Engine", "Request", "Walk"]


class Engine:
    """One pool, one store and the requests that run on them.

    Args:
        page_count: D of the scenarios.
        block_tokens: P of the scenarios.
        layout: of the pages; a tiny one of ``block_tokens`` by default.
    """

    def __init__(
        self,
        *,
        page_count: int,
        block_tokens: int = 4,
        layout: Layout | None = None,
        policy: EvictionPolicy | None = None,
        namespace: Namespace | None = None,
        retained_page_count_max: int | None = None,
    ) -> None:
        layout = layout or Layout(layers=2, kv_heads=1, head_dim=2, block_tokens=block_tokens)
        self.pool = NumpyPagePool(layout, page_count=page_count)
        self.block_tokens = layout.block_tokens
        self.store = KVStore(
            self.pool, policy=policy, namespace=namespace, retained_page_count_max=retained_page_count_max
        )
        self.poison = np.iinfo(self.pool.pages.dtype).max
        self.running: WeakSet[Request] = WeakSet()  # weak: a request may be dropped without an end

    def begin(
        self,
        tokens: Iterable[int],
        *,
        namespace: Namespace | None = None,
        media: Sequence[MediaSpan] = (),
        request_id: int | str | None = None,
        skip_read: bool = False,
        skip_write: bool = False,
    ) -> Request:
        """Start a request; what it finds in the cache is checked at once."""
        known = list(tokens)
        space = namespace or self.store.namespace
        sequence = self.store.begin(
            Prompt.of_tokens(known, media=media),
            namespace=space,
            request_id=request_id,
            skip_read=skip_read,
            skip_write=skip_write,
        )
        return Request(self, sequence, space, known, media, reads=not skip_read)

    def serve(
        self,
        tokens: Iterable[int],
        *,
        sampled: Iterable[int] = (),
        chunk: int | None = None,
        namespace: Namespace | None = None,
        media: Sequence[MediaSpan] = (),
        request_id: int | str | None = None,
    ) -> int:
        """Run a request from begin to release; returns how many of its prompt's tokens were ready to use."""
        with self.begin(tokens, namespace=namespace, media=media, request_id=request_id) as request:
            cached = request.sequence.cached_tokens
            request.prefill(chunk=chunk)
            request.decode(sampled)
            request.verify()
        return cached

    def cached(
        self, tokens: Iterable[int], *, namespace: Namespace | None = None, media: Sequence[MediaSpan] = ()
    ) -> int:
        """Leading tokens that are resident now."""
        return self.store.peek(Prompt.of_tokens(list(tokens), media=media), namespace=namespace)

    def grab(self, page_count: int, *, request_id: int | str | None = None) -> Request:
        """A running request of private pages that publishes nothing: whoever gets a page poisons it."""
        request = self.begin([0], skip_read=True, skip_write=True, request_id=request_id)
        try:
            request.reserve(through=page_count * self.block_tokens)
        except OutOfPages:
            request.abandon()
            raise
        return request

    def grab_all(self) -> Request:
        """Take every page that is free or can be made free."""
        stats = self.store.stats()
        return self.grab(stats.free_pages + stats.evictable_pages)

    def evict(self, block_count: int, *, request_id: int | str | None = None) -> None:
        """Make exactly ``block_count`` blocks lose their pages, coldest first."""
        evicted = sum(self.store.stats().evicted_blocks.values())
        self.grab(self.store.stats().free_pages + block_count, request_id=request_id).abandon()
        assert sum(self.store.stats().evicted_blocks.values()) == evicted + block_count

    def check(self) -> None:
        """Everything adds up, and every running request still reads what it wrote or reused."""
        self.store.audit()
        for request in list(self.running):
            request.verify()

    def check_quiet(self) -> None:
        """Nothing runs: every page is free or cached, every cached one could be evicted."""
        self.check()
        stats = self.store.stats()
        assert stats.running == 0
        assert stats.reserved_pages == 0
        assert stats.free_pages + stats.cached_pages == stats.page_count
        assert stats.evictable_pages == stats.cached_pages


class Request:
    """One request of the engine; a context manager that releases, or abandons on an exception."""

    def __init__(
        self,
        engine: Engine,
        sequence: StoreSequence,
        namespace: Namespace,
        tokens: list[int],
        media: Sequence[MediaSpan],
        *,
        reads: bool,
    ) -> None:
        self.engine = engine
        self.sequence = sequence
        self.namespace = namespace
        self.tokens = tokens
        self.media = media
        self.written = sequence.cached_tokens  #: leading tokens that have KV
        self._reads = reads
        self._found_tokens = self._find()
        self._state = hashlib.sha256(_identity(namespace))
        self._stamps: list[bytes] = []
        engine.running.add(self)
        self.verify()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.release()
        else:
            self.abandon()

    @property
    def held_tokens(self) -> int:
        """Leading tokens whose cached blocks this request protects, as far as an engine can tell."""
        return max(self._found_tokens, self.sequence.committed_tokens)

    @property
    def pages(self) -> list[int]:
        """The page table."""
        return self.sequence.page_table.tolist()

    def reserve(self, *, through: int | None = None) -> None:
        """Have pages for all known tokens, or through a position; new pages are poisoned."""
        before = len(self.pages)
        self.sequence.reserve(through=len(self.tokens) if through is None else through)
        self.engine.pool.pages[self.pages[before:]] = self.engine.poison

    def write(self, *, through: int | None = None) -> None:
        """A forward pass: the KV of the tokens in ``[written, through)``, all known ones by default."""
        through = len(self.tokens) if through is None else through
        assert self.written >= self.sequence.committed_tokens, "an engine never writes to a shared page"
        pool, table, size = self.engine.pool, self.pages, self.engine.block_tokens
        shape = (pool.layout.layers, 2, pool.layout.kv_heads, pool.layout.head_dim)
        for at, stamp in enumerate(self._stamps_to(through)[self.written :], self.written):
            pool.pages[table[at // size], :, :, at % size] = np.frombuffer(stamp, pool.pages.dtype).reshape(shape)
        self.written = max(self.written, through)

    def commit(self, *, fold: bool = True) -> Commit:
        """Publish what has been written."""
        return self.sequence.commit(through=self.written, fold=fold)

    def prefill(self, *, chunk: int | None = None) -> None:
        """Compute and publish the known tokens, ``chunk`` at a time."""
        end = len(self.tokens)
        while self.written < end:
            through = end if chunk is None else min(end, self.written + chunk)
            self.reserve(through=through)
            self.write(through=through)
            self.commit()

    def decode(self, sampled: Iterable[int]) -> None:
        """Sample tokens: each step computes what is known, and then knows one token more, which has no KV yet."""
        for token in sampled:
            self.prefill()
            self.append([token])

    def append(self, tokens: Sequence[int]) -> None:
        """More tokens are known."""
        self.sequence.append(tokens)
        self.tokens += tokens

    def park(self) -> None:
        """Preempt."""
        self.sequence.park()
        self.written = self._found_tokens = 0

    def resume(self) -> int:
        """Go on after ``park``; returns the tokens found again."""
        self.written = self.sequence.resume()
        self._found_tokens = self._find()
        self.verify()
        return self.written

    def release(self) -> None:
        """End well."""
        self.engine.running.discard(self)
        self.sequence.release()

    def abandon(self) -> None:
        """End badly."""
        self.engine.running.discard(self)
        self.sequence.abandon()

    def verify(self) -> None:
        """All KV that this request would read carries its stamp."""
        pages, size = self.engine.pool.pages[self.sequence.page_table], self.engine.pool.layout.page_bytes
        found = np.moveaxis(pages, 3, 1).tobytes()  # token by token
        stamps = self._stamps_to(self.written)
        if not found.startswith(b"".join(stamps)):
            size //= self.engine.block_tokens
            wrong = [at for at, stamp in enumerate(stamps) if found[at * size : (at + 1) * size] != stamp]
            raise AssertionError(f"{self.sequence} would read foreign, stale or unwritten KV at positions {wrong}")

    def _find(self) -> int:
        return self.engine.cached(self.tokens, namespace=self.namespace, media=self.media) if self._reads else 0

    def _stamps_to(self, through: int) -> list[bytes]:
        """Stamps of the tokens in ``[0, through)``: words of [layers, 2, kv_heads, head_dim] each."""
        size = self.engine.pool.layout.page_bytes // self.engine.block_tokens
        for at in range(len(self._stamps), through):
            self._state.update(struct.pack("<I", self.tokens[at]) + self._media_at(at))
            self._stamps.append(hashlib.shake_128(self._state.digest()).digest(size))
        return self._stamps[:through]

    def _media_at(self, at: int) -> bytes:
        for span in self.media:
            if span.start <= at < span.start + span.token_count:
                return span.digest + struct.pack("<I", at - span.start)
        return b""


class Walk:
    """Requests over a tiny alphabet that begin, run, park, resume and end at random, some of them twice.

    Args:
        running_max: requests at a time.
        length_max: of a prompt, in tokens.
    """

    def __init__(self, engine: Engine, *, seed: int, running_max: int = 4, length_max: int = 20) -> None:
        self.engine = engine
        self.requests: list[Request] = []
        self.prompts: list[list[int]] = []  #: of all requests so far
        self._parked: set[Request] = set()
        self._random = random.Random(seed)
        self._running_max = running_max
        self._length_max = length_max

    def step(self) -> None:
        """One random event; a refusal for lack of pages is an event like others."""
        choose = self._random
        if len(self.requests) < self._running_max and choose.random() < 0.4:
            self.requests.append(self.engine.begin(self._prompt(), skip_read=choose.random() < 0.1))
        if not self.requests:
            return
        request = choose.choice(self.requests)
        act = choose.choice([self._advance] * 5 + [self._sample] * 3 + [self._pause] * 2 + [self._end] * 2)
        try:
            act(request)
        except OutOfPages:
            self._pause(request)

    def quiet(self) -> None:
        """End what still runs."""
        while self.requests:
            self._end(self.requests[0])

    def _prompt(self) -> list[int]:
        """The head of an earlier prompt, or nothing, and some letters."""
        choose = self._random
        head: list[int] = choose.choice(self.prompts) if self.prompts and choose.random() < 0.6 else []
        tokens = head[: choose.randint(0, self._length_max - 1)]
        tokens += [choose.randrange(3) for _ in range(choose.randint(1, self._length_max - len(tokens)))]
        self.prompts.append(tokens)
        return list(tokens)

    def _advance(self, request: Request) -> None:
        if request not in self._parked:
            through = self._random.randint(0, len(request.tokens))
            request.reserve(through=through)
            request.write(through=max(through, request.written))
            request.commit(fold=self._random.random() < 0.8)

    def _sample(self, request: Request) -> None:
        if request not in self._parked:
            request.decode([self._random.randrange(3)])

    def _pause(self, request: Request) -> None:
        if request in self._parked:
            self._parked.remove(request)
            request.resume()
        else:
            self._parked.add(request)
            request.park()
            request.park()

    def _end(self, request: Request) -> None:
        self.requests.remove(request)
        self._parked.discard(request)
        ends = [request.release, request.abandon]
        self._random.choice(ends)()
        self._random.choice(ends)()


def _identity(namespace: Namespace) -> bytes:
    """The fields, not the digest: a digest that forgets a field must show."""
    fields = (
        namespace.model,
        namespace.revision,
        namespace.layout,
        namespace.adapter,
        namespace.adapter_revision,
        namespace.salt,
        sorted(namespace.extras.items()),
    )
    return repr(fields).encode()
