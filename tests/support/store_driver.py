"""An engine that drives a real store and the model side by side, with real pages, and compares all that can be seen.

Whoever drives it chooses what to do; every operation also checks its own answer, ``agree`` compares the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from eviction import FifoPolicy, LruPolicy
from kvstore import (
    BlockFate,
    BlockFormat,
    InvalidRequest,
    KVStore,
    MediaSpan,
    Namespace,
    OutOfPages,
    Prompt,
    ResetRefused,
    Sequence,
    SequenceBatch,
    SequenceLost,
    StoreStats,
)
from tests.support.stamps import Content, GarblingAllocator, stamped_pages
from tests.support.store_model import ModelRequest, ModelStore, Prefix

__all__ = ["RUNNING_MAX", "Live", "StoreDriver", "refused"]

E = TypeVar("E", bound=Exception)

RUNNING_MAX = 6

_PAD = 9  #: a token that no request uses, so that nothing cached continues with it
_IMAGES = (b"an image's digest".ljust(32), b"another image".ljust(32))
_MEDIA_BLOCK_TOKENS = 4  #: shorter blocks can't carry media
_COUNTERS = (
    "requests",
    "queried_tokens",
    "hit_tokens",
    "resumed_tokens",
    "published_blocks",
    "duplicate_blocks",
    "out_of_pages",
    "ended_unreleased",
)


@dataclass(slots=True, eq=False)
class Live:
    """A running request, what the model thinks of it, and what its pages must hold."""

    sequence: Sequence
    model: ModelRequest
    content: Content
    written: int = 0  #: leading blocks of its page table that hold KV


class StoreDriver:
    """One store of two tenants.

    Args:
        policy: ``lru`` or ``fifo``; the model knows these two exactly.
        retained: ``retained_page_count_max``.
    """

    def __init__(self, policy: str, *, page_count: int, block_tokens: int, retained: int | None) -> None:
        self.pages = stamped_pages(page_count=page_count, block_tokens=block_tokens)
        self.allocator = GarblingAllocator(self.pages)
        blocks = BlockFormat.of_tokens(block_tokens)
        self.spaces = [Namespace(model="m", format=blocks), Namespace(model="m", format=blocks, salt="tenant")]
        self.store = KVStore(
            self.pages.pool,
            policy=LruPolicy() if policy == "lru" else FifoPolicy(),
            namespace=self.spaces[0],
            allocator=self.allocator,
            retained_page_count_max=retained,
            now_ns=lambda: 7,
        )
        self.block_tokens = block_tokens
        self.model = ModelStore(
            page_count, block_tokens, page_count if retained is None else retained, renews=policy == "lru"
        )
        self.live: list[Live] = []
        self.ended: list[Sequence] = []
        self.prompts: list[tuple[list[int], tuple[MediaSpan, ...]]] = [([0], ())]
        self._before: StoreStats | None = None
        self._ordinal = 0

    @property
    def decoding(self) -> list[Live]:
        """The requests that may go on."""
        return [live for live in self.live if not live.model.parked and not live.model.lost]

    @property
    def has_room(self) -> bool:
        return len(self.live) < RUNNING_MAX

    def pick(self, which: int, rather: list[Live] | None = None) -> Live:
        """Mostly a request that may go on, if there is one; now and then (``which`` = 0) any."""
        choice = (self.decoding if rather is None else rather) if which else []
        return (choice or self.live)[which % len(choice or self.live)]

    def media(self, tokens: list[int], image: int, at: int) -> tuple[MediaSpan, ...]:
        """Image ``image``, if there is one of this number, at token ``at``, if it fits."""
        if image >= len(_IMAGES) or at >= len(tokens) or self.block_tokens < _MEDIA_BLOCK_TOKENS:
            return ()
        return (MediaSpan(start=at, token_count=min(5, len(tokens) - at), digest=_IMAGES[image]),)

    def prompt_like(self, which: int, cut: int, more: list[int]) -> tuple[list[int], tuple[MediaSpan, ...]]:
        """A prompt that begins as an earlier one did."""
        alike, media = self.prompts[which % len(self.prompts)]
        tokens = (alike[:cut] + more)[:20] or [0]
        return tokens, _inside(media, tokens)

    def begin(
        self,
        tokens: list[int],
        media: tuple[MediaSpan, ...],
        space: int,
        *,
        skip_read: bool = False,
        skip_write: bool = False,
    ) -> Live:
        if _PAD not in tokens:
            self.prompts = [*self.prompts[-30:], (tokens, media)]
        namespace = self.spaces[space]
        buffer = np.array(tokens, np.int32)
        prompt = Prompt.of_tokens(buffer, media=media)
        buffer[:] = _PAD  # an engine reuses its buffers
        self._ordinal += 1
        sequence = self.store.begin(
            prompt, namespace=namespace, request_id=self._ordinal, skip_read=skip_read, skip_write=skip_write
        )
        model = self.model.begin(namespace.digest, tokens, media, skip_read=skip_read, skip_write=skip_write)
        found = 0 if skip_read else self.model.match(namespace.digest, tokens, media)
        assert sequence.matched_tokens == found * self.block_tokens
        assert sequence.cached_tokens == model.shared * self.block_tokens == model.hit_tokens
        assert sequence.cached_tokens < len(tokens)
        live = Live(sequence, model, Content(namespace.digest, list(tokens), media), written=model.shared)
        self.live.append(live)
        self._check_live(live)
        return live

    def begin_alike(
        self, alike: Live, cut: int, more: list[int], *, same_space: bool, skip_read: bool, at_once: bool, fold: bool
    ) -> None:
        """Beside a request that runs and begins like this one; both may compute the same blocks."""
        tokens = alike.model.tokens[:cut] + more
        mine = [namespace.digest for namespace in self.spaces].index(alike.model.space)
        media = _inside(alike.model.media, tokens)
        live = self.begin(tokens, media, mine if same_space else 1 - mine, skip_read=skip_read)
        if at_once and self.reserve(live, through=len(tokens)):
            self.commit(live, through=len(tokens), fold=fold)

    def append(self, live: Live, tokens: list[int]) -> None:
        live.sequence.append(tokens)
        live.model.tokens += tokens
        live.content.tokens += tokens
        assert live.sequence.token_count == len(live.model.tokens)

    def reserve(self, live: Live, *, through: int) -> bool:
        """Whether there was room."""
        if live.model.lost or live.model.parked:
            refused(InvalidRequest, lambda: live.sequence.reserve(through=through))
            return False
        had = len(live.sequence.page_table)
        expected = self.model.reserve(live.model, through=through)
        if expected is not None:
            error = refused(OutOfPages, lambda: live.sequence.reserve(through=through))
            assert (error.needed, error.free, error.evictable) == expected
            return False
        live.sequence.reserve(through=through)
        self.pages.garble(live.sequence.page_table[had:].tolist())
        return True

    def commit(self, live: Live, *, through: int, fold: bool) -> None:
        sequence = live.sequence
        if live.model.lost or live.model.parked:
            refused(InvalidRequest, lambda: sequence.commit(through=through))
            return
        self._write(live, through)
        before = sequence.page_table
        expected = self.model.commit(live.model, through=through, fold=fold)
        change = sequence.commit(through=through, fold=fold)
        assert change == expected
        kept = np.ones(len(before), np.bool_)
        kept[change.remapped.start : change.remapped.stop] = False
        assert np.array_equal(sequence.page_table[kept], before[kept]), "a page changed that was not said to"
        assert sequence.commit(through=through, fold=fold) == (change.tokens, range(0)), "not idempotent"

    def commit_all(self, live: Live, *, back: int, fold: bool) -> None:
        """As far as tokens and pages reach, less ``back`` tokens."""
        through = min(live.sequence.token_count, live.sequence.reserved_tokens) - back
        self.commit(live, through=max(0, through), fold=fold)

    def commit_what_is_not_there(self, live: Live, *, past: int) -> None:
        sequence = live.sequence
        refused(InvalidRequest, lambda: sequence.commit(through=sequence.token_count + past))
        unreserved = sequence.reserved_tokens + self.block_tokens
        if unreserved <= sequence.token_count:
            refused(InvalidRequest, lambda: sequence.commit(through=unreserved))

    def step(self, live: Live, *, ahead: int, tokens: list[int], fold: bool) -> None:
        """What an engine does to a request most of the time: make room, compute what is known, sample more."""
        if self.reserve(live, through=live.sequence.token_count + ahead):
            self.commit(live, through=live.sequence.token_count, fold=fold)
            self.append(live, tokens)

    def decode_in_step(self, columns: list[list[int]]) -> None:
        """All requests that may go on gain one token a step, as a batch."""
        members = self.decoding
        batch = self.store.batch(live.sequence for live in members)
        for column in columns:
            if not self._reserve_batch(batch, members):
                break
            batch.append(np.array(column[: len(members)], np.int32))
            for live, token in zip(members, column, strict=False):
                live.model.tokens.append(token)
                live.content.tokens.append(token)
            through = [len(live.model.tokens) for live in members]
            for live, end in zip(members, through, strict=True):
                self._write(live, end)
            done = batch.commit(np.array(through, np.int64))
            for row, (live, end) in enumerate(zip(members, through, strict=True)):
                expected = self.model.commit(live.model, through=end, fold=True)
                assert done.get(row, expected) == expected
        batch.flush()

    def park(self, live: Live) -> None:
        if live.model.lost:
            refused(SequenceLost, live.sequence.park)
            return
        live.sequence.park()
        self.model.park(live.model)
        live.written = 0
        assert not len(live.sequence.page_table)

    def resume(self, live: Live) -> None:
        if live.model.lost or not live.model.parked:
            refused(SequenceLost if live.model.lost else InvalidRequest, live.sequence.resume)
            return
        cached = live.sequence.resume()
        self.model.resume(live.model)
        assert cached == live.sequence.cached_tokens == live.model.shared * self.block_tokens
        assert cached < live.sequence.token_count
        live.written = live.model.shared

    def end(self, live: Live, *, used: bool) -> None:
        self.live.remove(live)
        if used:
            live.sequence.release()
        else:
            live.sequence.abandon()
        self.model.end(live.model, used=used)
        self.ended = [*self.ended[-3:], live.sequence]

    def end_again(self, sequence: Sequence, *, used: bool) -> None:
        sequence.release() if used else sequence.abandon()
        assert not len(sequence.page_table)
        for call in (sequence.park, sequence.resume, lambda: sequence.reserve(through=1), lambda: sequence.append([1])):
            refused(InvalidRequest, call)

    def drop(self, live: Live) -> None:
        """Lose the last reference: its finalizer runs before this returns."""
        self.live.remove(live)
        self.model.end(live.model, used=False)
        self.model.counts["ended_unreleased"] += 1
        del live.sequence

    def serve(self, tokens: list[int], media: tuple[MediaSpan, ...], space: int, *, fails: bool) -> None:
        """A whole request as a context."""
        live = self.begin(tokens, media, space)
        try:
            with live.sequence as sequence:
                if self.reserve(live, through=len(tokens)):
                    self.commit(live, through=len(tokens), fold=True)
                if fails:
                    raise KeyError(sequence.request_id)
        except KeyError:
            assert fails
        self.live.remove(live)
        self.model.end(live.model, used=not fails)

    def reset(self, *, force: bool) -> None:
        if self.live and not force:
            assert refused(ResetRefused, self.store.reset).running == len(self.live)
            return
        assert self.store.reset(force=force) == self.model.reset()
        assert all(live.sequence.is_lost for live in self.live)

    def peek_and_explain(self, tokens: list[int], media: tuple[MediaSpan, ...], space: int) -> None:
        namespace = self.spaces[space]
        found = self.model.match(namespace.digest, tokens, media)
        peeked = self.store.peek(Prompt.of_tokens(tokens, media=media), namespace=namespace)
        assert peeked == found * self.block_tokens
        self._check_explanation(tokens, media, space)

    def ask_for_everything(self, *, take: bool) -> None:
        """What counts as evictable really is, and not one page more."""
        live = self.begin([_PAD], (), 0)
        stats = self.store.stats()
        room = (stats.free_pages + stats.evictable_pages) * self.block_tokens
        assert not self.reserve(live, through=room + 1)
        assert self.store.stats() == replace(stats, out_of_pages=stats.out_of_pages + 1)
        if take:
            assert self.reserve(live, through=room)
        self.end(live, used=False)

    def read_everything(self) -> None:
        for leaf in self._leaves():
            tokens, media = _spelled(leaf)
            space = [namespace.digest for namespace in self.spaces].index(leaf[0])
            self.end(self.begin(tokens, media, space), used=False)

    def agree(self) -> None:
        """The store, the model and the pages tell the same."""
        self.store.audit()
        self._check_counts()
        spaces = {namespace.digest: namespace for namespace in self.spaces}
        for leaf in self._leaves():
            tokens, media = _spelled(leaf)
            cached = self.store.peek(Prompt.of_tokens(tokens, media=media), namespace=spaces[leaf[0]])
            assert cached == (len(leaf) - 1) * self.block_tokens, f"{leaf} should be cached"
        for live in self.live:
            self._check_live(live)

    def close(self) -> None:
        """End everything: when all is quiet, every page is free or cached."""
        for live in list(self.live):
            self.end(live, used=True)
        self.agree()
        stats = self.store.stats()
        assert stats.free_pages + stats.cached_pages == stats.page_count
        assert (stats.reserved_pages, stats.running) == (0, 0)
        assert stats.evictable_pages == stats.cached_pages
        self.store.reset()
        assert self.store.stats().free_pages == stats.page_count
        assert not self.allocator.out

    def _write(self, live: Live, through: int) -> None:
        """The engine computes what it has room for and nobody computed, in its own pages only."""
        end = through // self.block_tokens
        start = max(live.written, live.model.shared)
        if end > start:
            self.pages.write(live.sequence.page_table, live.content, start=start, end=end)
        live.written = max(live.written, end)

    def _reserve_batch(self, batch: SequenceBatch, members: list[Live]) -> bool:
        through = [len(live.model.tokens) + 1 for live in members]
        need = sum(self.model.shortfall(live.model, end) for live, end in zip(members, through, strict=True))
        for live, end in zip(members, through, strict=True):
            if self.model.shortfall(live.model, end):
                self.model.let_last_go(live.model, need)
        if need > self.model.free + self.model.evictable:
            self.model.counts["out_of_pages"] += 1
            error = refused(OutOfPages, lambda: batch.reserve(ahead=1))
            assert (error.needed, error.free, error.evictable) == (need, self.model.free, self.model.evictable)
            return False
        had = [len(live.sequence.page_table) for live in members]
        batch.reserve(ahead=1)
        for live, end, pages in zip(members, through, had, strict=True):
            if self.model.shortfall(live.model, end):
                assert self.model.reserve(live.model, through=end) is None
            self.pages.garble(live.sequence.page_table[pages:].tolist())
        return True

    def _leaves(self) -> list[Prefix]:
        parents = {block[:-1] for block in self.model.ranks}
        return [block for block in self.model.ranks if block not in parents]

    def _check_live(self, live: Live) -> None:
        model, sequence = live.model, live.sequence
        assert sequence.is_lost == bool(model.lost)
        assert sequence.committed_tokens == model.shared * self.block_tokens
        assert len(sequence.page_table) == model.shared + model.own
        self.pages.check(sequence.page_table, live.content, end=live.written)
        assert self.allocator.out.issuperset(sequence.page_table.tolist())

    def _check_counts(self) -> None:
        stats, model = self.store.stats(), self.model
        pages = (stats.free_pages, stats.cached_pages, stats.evictable_pages, stats.reserved_pages)
        assert pages == (model.free, len(model.ranks), model.evictable, model.reserved)
        assert stats.free_pages + stats.cached_pages + stats.reserved_pages == stats.page_count
        assert (stats.running, stats.namespaces) == (len(self.live), len(model.spaces))
        assert {name: getattr(stats, name) for name in _COUNTERS} == {name: model.counts[name] for name in _COUNTERS}
        assert stats.evicted_blocks == {reason: model.counts[reason] for reason in ("capacity", "retention", "reset")}
        assert stats.published_blocks - sum(stats.evicted_blocks.values()) == stats.cached_pages
        assert stats.hit_tokens <= stats.queried_tokens
        assert len(self._leaves()) <= stats.nodes <= stats.cached_pages
        if self._before is not None:
            assert all(getattr(stats, name) >= getattr(self._before, name) for name in _COUNTERS)
        self._before = stats

    def _check_explanation(self, tokens: list[int], media: tuple[MediaSpan, ...], space: int) -> None:
        mine, other = self.spaces[space], self.spaces[1 - space]
        full = len(tokens) // self.block_tokens
        explanation = self.store.explain(Prompt.of_tokens(tokens, media=media), namespace=mine)
        ends = [0]
        for span in explanation.spans:
            assert span.start_block == ends[-1] < span.end_block, "spans must tile the prompt"
            ends.append(span.end_block)
        assert ends[-1] == -(-len(tokens) // self.block_tokens)
        fates = [span.fate for span in explanation.spans for _ in range(span.start_block, span.end_block)]
        blocks = self.model.blocks(tokens, media, full)
        hit = self.model.resident(mine.digest, blocks)
        elsewhere = self.model.resident(other.digest, blocks)
        for block, fate in enumerate(fates):
            assert (fate is BlockFate.HIT) == (block < hit)
            assert (fate is BlockFate.PARTIAL) == (block >= full)
            if fate is BlockFate.EVICTED:
                assert (mine.digest, *blocks[: block + 1]) in self.model.ever, "evicted, but it was never there"
            if fate is BlockFate.OTHER_NAMESPACE:
                assert block < elsewhere
        assert all(span.differing_fields in ((), ("salt",)) for span in explanation.spans)


def refused(kind: type[E], call: Callable[[], object]) -> E:
    """The error of a call, without its frames: ``pytest.raises`` would keep dropped sequences alive."""
    try:
        call()
    except kind as error:
        return error.with_traceback(None)
    raise AssertionError(f"{kind.__name__} was not raised")


def _inside(media: tuple[MediaSpan, ...], tokens: list[int]) -> tuple[MediaSpan, ...]:
    return tuple(span for span in media if span.start + span.token_count <= len(tokens))


def _spelled(prefix: Prefix) -> tuple[list[int], tuple[MediaSpan, ...]]:
    """A prompt whose longest cached prefix is at most ``prefix``: its tokens, and then some that nobody uses."""
    tokens: list[int] = []
    spans = set()
    for words, touching in prefix[1:]:  # type: ignore[misc]
        spans |= {(len(tokens) + start, count, digest) for start, count, digest in touching}
        tokens += words
    end = max([len(tokens) + 1, *(start + count for start, count, _ in spans)])
    media = tuple(MediaSpan(start=start, token_count=count, digest=digest) for start, count, digest in sorted(spans))
    return tokens + [_PAD] * (end - len(tokens)), media
