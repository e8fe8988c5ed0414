"""The store against a dictionary of blocks: every answer, every count, every byte, whatever is called in any order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

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
from tests.support.stamps import Content, GarblingAllocator, StampedPages, stamped_pages
from tests.support.store_model import ModelRequest, ModelStore, Prefix

E = TypeVar("E", bound=Exception)

_RUNNING_MAX = 6
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

#: Runs of one letter: prompts that share prefixes often, and end anywhere in a block.
_words = st.lists(st.tuples(st.integers(0, 2), st.integers(3, 9)), min_size=1, max_size=3).map(
    lambda runs: [letter for letter, count in runs for _ in range(count)][:20]
)
_few = st.lists(st.integers(0, 2), max_size=6)
_which = st.integers(0, _RUNNING_MAX - 1)


@dataclass(slots=True, eq=False)
class Live:
    """A running request, what the model thinks of it, and what its pages must hold."""

    sequence: Sequence
    model: ModelRequest
    content: Content
    written: int = 0  #: leading blocks of its page table that hold KV


class StoreMachine(RuleBasedStateMachine):
    """Everything that an engine may do to a store."""

    policy: type[LruPolicy[object]] | type[FifoPolicy[object]] = LruPolicy

    def __init__(self) -> None:
        super().__init__()
        self.live: list[Live] = []
        self.prompts: list[tuple[list[int], tuple[MediaSpan, ...]]] = []
        self.ended: list[Sequence] = []
        self.before: StoreStats | None = None
        self.ordinal = 0

    @initialize(
        page_count=st.one_of(st.integers(8, 14), st.integers(8, 40)),
        block_tokens=st.sampled_from([1, 2, 3, 4, 4]),
        retained=st.one_of(st.none(), st.none(), st.integers(0, 20)),
    )
    def open(self, page_count: int, block_tokens: int, retained: int | None) -> None:
        self.pages: StampedPages = stamped_pages(page_count=page_count, block_tokens=block_tokens)
        self.allocator = GarblingAllocator(self.pages)
        blocks = BlockFormat.of_tokens(block_tokens)
        self.spaces = [Namespace.of(model="m", format=blocks), Namespace.of(model="m", format=blocks, salt="tenant")]
        self.store = KVStore(
            self.pages.pool,
            policy=self.policy(),
            namespace=self.spaces[0],
            allocator=self.allocator,
            retained_page_count_max=retained,
            now_ns=lambda: 7,
        )
        self.model = ModelStore(
            page_count,
            block_tokens,
            page_count if retained is None else retained,
            renews=self.policy is LruPolicy,
        )

    @precondition(lambda self: len(self.live) < _RUNNING_MAX)
    @rule(
        tokens=_words, space=st.integers(0, 1), image=st.integers(0, 3), at=st.integers(0, 12), flags=st.integers(0, 9)
    )
    def begin(self, tokens: list[int], space: int, image: int, at: int, flags: int) -> None:
        media = self._media(tokens, image, at)
        self.prompts.append((tokens, media))
        self._begin(tokens, media, space, skip_read=flags == 8, skip_write=flags == 9)

    @precondition(lambda self: self.live and len(self.live) < _RUNNING_MAX)
    @rule(which=_which, cut=st.integers(1, 30), more=_few, space=st.integers(0, 3), skip_read=st.booleans())
    def begin_alike(self, which: int, cut: int, more: list[int], space: int, skip_read: bool) -> None:
        """Beside a request that runs and begins like this one."""
        alike = self._pick(which)
        tokens = alike.model.tokens[:cut] + more
        media = _inside(alike.model.media, tokens)
        self.prompts.append((tokens, media))
        mine = [namespace.digest for namespace in self.spaces].index(alike.model.space)
        self._begin(tokens, media, mine if space else 1 - mine, skip_read=skip_read and space == 1)

    @precondition(lambda self: len(self.live) < _RUNNING_MAX)
    @rule()
    def begin_with_nothing(self) -> None:
        _refused(InvalidRequest, lambda: self.store.begin(Prompt.of_tokens([])))

    @precondition(lambda self: self.live)
    @rule(which=_which, ahead=st.integers(-4, 24))
    def reserve(self, which: int, ahead: int) -> None:
        live = self._pick(which)
        self._reserve(live, max(0, live.sequence.token_count + ahead))

    @precondition(lambda self: self.live)
    @rule(which=_which, tokens=_few)
    def append(self, which: int, tokens: list[int]) -> None:
        self._append(self._pick(which), tokens)

    @precondition(lambda self: self.live)
    @rule(which=_which, tokens=_few, ahead=st.integers(0, 3), fold=st.sampled_from([True, True, True, False]))
    def step(self, which: int, tokens: list[int], ahead: int, fold: bool) -> None:
        """What an engine does to a request most of the time: make room, compute what is known, sample more."""
        live = self._pick(which, self._decoding())
        if self._reserve(live, live.sequence.token_count + ahead):
            self._commit(live, live.sequence.token_count, fold=fold)
            self._append(live, tokens)

    @precondition(lambda self: self.live)
    @rule(which=_which, back=st.integers(0, 7), fold=st.sampled_from([True, True, False]))
    def commit(self, which: int, back: int, fold: bool) -> None:
        live = self._pick(which)
        self._commit(live, max(0, min(live.sequence.token_count, live.sequence.reserved_tokens) - back), fold=fold)

    @precondition(lambda self: self.live)
    @rule(which=_which, past=st.integers(1, 9))
    def commit_what_is_not_there(self, which: int, past: int) -> None:
        live = self._pick(which)
        sequence = live.sequence
        _refused(InvalidRequest, lambda: sequence.commit(through=sequence.token_count + past))
        unreserved = sequence.reserved_tokens + self.model.block_tokens
        if unreserved <= sequence.token_count:
            _refused(InvalidRequest, lambda: sequence.commit(through=unreserved))

    @precondition(lambda self: self.live)
    @rule(which=_which)
    def park(self, which: int) -> None:
        live = self._pick(which, self._decoding())
        if live.model.lost and not live.model.parked:
            _refused(SequenceLost, live.sequence.park)
            return
        live.sequence.park()
        if not live.model.lost:
            self.model.park(live.model)
            live.written = 0
        assert not len(live.sequence.page_table)

    @precondition(lambda self: self.live)
    @rule(which=_which)
    def resume(self, which: int) -> None:
        live = self._pick(which, [live for live in self.live if live.model.parked])
        if live.model.lost or not live.model.parked:
            _refused(SequenceLost if live.model.lost else InvalidRequest, live.sequence.resume)
            return
        cached = live.sequence.resume()
        self.model.resume(live.model)
        assert cached == live.sequence.cached_tokens == live.model.shared * self.model.block_tokens
        assert cached < live.sequence.token_count
        live.written = live.model.shared

    @precondition(lambda self: self.live)
    @rule(which=_which, used=st.sampled_from([True, True, False]))
    def end(self, which: int, used: bool) -> None:
        self._end(self._pick(which), used=used)

    @precondition(lambda self: self.ended)
    @rule(which=_which, used=st.booleans())
    def end_again(self, which: int, used: bool) -> None:
        sequence = self.ended[which % len(self.ended)]
        sequence.release() if used else sequence.abandon()
        assert not len(sequence.page_table)
        for call in (sequence.park, sequence.resume, lambda: sequence.reserve(through=1), lambda: sequence.append([1])):
            _refused(InvalidRequest, call)

    @precondition(lambda self: self.live)
    @rule(which=_which)
    def drop(self, which: int) -> None:
        live = self._pick(which)
        self.live.remove(live)
        self.model.end(live.model, used=False)
        self.model.counts["ended_unreleased"] += 1
        live.sequence = None  # type: ignore[assignment] - the last reference: its finalizer runs here

    @precondition(lambda self: len(self.live) < _RUNNING_MAX)
    @rule(
        which=st.integers(0, 30),
        cut=st.integers(0, 20),
        words=_words,
        space=st.sampled_from([0, 0, 1]),
        fails=st.sampled_from([False, False, True]),
    )
    def serve(self, which: int, cut: int, words: list[int], space: int, fails: bool) -> None:
        """A whole request, often one that begins like another."""
        alike, media = self.prompts[which % len(self.prompts)] if self.prompts else ([], ())
        tokens = (alike[:cut] + words)[:20]
        media = _inside(media, tokens)
        self.prompts.append((tokens, media))
        live = self._begin(tokens, media, space)
        try:
            with live.sequence as sequence:
                if self._reserve(live, len(tokens)):
                    self._commit(live, len(tokens), fold=True)
                if fails:
                    raise KeyError(sequence.request_id)
        except KeyError:
            assert fails
        self.live.remove(live)
        self.model.end(live.model, used=not fails)

    @precondition(lambda self: self.prompts)
    @rule(which=st.integers(0, 30), cut=st.integers(1, 20), space=st.integers(0, 1))
    def peek_and_explain(self, which: int, cut: int, space: int) -> None:
        tokens, media = self.prompts[which % len(self.prompts)]
        tokens = tokens[:cut]
        media = _inside(media, tokens)
        prompt, namespace = Prompt.of_tokens(tokens, media=media), self.spaces[space]
        found = self.model.match(namespace.digest, tokens, media)
        assert self.store.peek(prompt, namespace=namespace) == found * self.model.block_tokens
        self._check_explanation(tokens, media, space)

    @rule(odds=st.integers(0, 7), force=st.booleans())
    def reset(self, odds: int, force: bool) -> None:
        if odds != 5:  # far from every end: Hypothesis likes those, and a store that is always empty shows nothing
            return
        if self.live and not force:
            assert _refused(ResetRefused, self.store.reset).running == len(self.live)
            return
        assert self.store.reset(force=force) == self.model.reset()
        assert all(live.sequence.is_lost for live in self.live)

    @precondition(lambda self: self._decoding())
    @rule(steps=st.integers(1, 5), letters=st.lists(st.integers(0, 2), min_size=30, max_size=30))
    def decode_in_step(self, steps: int, letters: list[int]) -> None:
        batch_of = self._decoding()
        batch = self.store.batch(live.sequence for live in batch_of)
        for step in range(steps):
            if not self._reserve_batch(batch, batch_of):
                break
            column = letters[step * len(batch_of) : (step + 1) * len(batch_of)]
            batch.append(np.array(column))
            for live, letter in zip(batch_of, column, strict=True):
                live.model.tokens.append(letter)
                live.content.tokens.append(letter)
            through = [len(live.model.tokens) for live in batch_of]
            for live, end in zip(batch_of, through, strict=True):
                self._write(live, end)
            done = batch.commit(np.array(through))
            for row, (live, end) in enumerate(zip(batch_of, through, strict=True)):
                expected = self.model.commit(live.model, through=end, fold=True)
                if row in done:
                    assert done[row] == expected
        batch.flush()

    @precondition(lambda self: len(self.live) < _RUNNING_MAX)
    @rule(take=st.sampled_from([False, False, False, True]))
    def ask_for_everything(self, take: bool) -> None:
        live = self._begin([_PAD], (), 0)
        stats = self.store.stats()
        room = (stats.free_pages + stats.evictable_pages) * self.model.block_tokens
        assert not self._reserve(live, room + 1)
        assert self.store.stats() == replace(stats, out_of_pages=stats.out_of_pages + 1)
        if take:
            assert self._reserve(live, room)
        self._end(live, used=False)

    @precondition(lambda self: len(self.live) < _RUNNING_MAX)
    @rule()
    def read_everything(self) -> None:
        for leaf in self._leaves():
            space = [namespace.digest for namespace in self.spaces].index(leaf[0])
            tokens, media = _spelled(leaf)
            self._end(self._begin(tokens, media, space), used=False)

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "store"):
            return
        self.store.audit()
        self._check_counts()
        for leaf in self._leaves():
            tokens, media = _spelled(leaf)
            (namespace,) = (space for space in self.spaces if space.digest == leaf[0])
            blocks = self.store.peek(Prompt.of_tokens(tokens, media=media), namespace=namespace)
            assert blocks == (len(leaf) - 1) * self.model.block_tokens, f"{leaf} should be cached"
        for live in self.live:
            self._check_live(live)

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        for live in list(self.live):
            self._end(live, used=True)
        self.agree()
        stats = self.store.stats()
        assert stats.free_pages + stats.cached_pages == stats.page_count
        assert (stats.reserved_pages, stats.running) == (0, 0)
        assert stats.evictable_pages == stats.cached_pages
        self.store.reset()
        assert self.store.stats().free_pages == stats.page_count
        assert not self.allocator.out

    def _pick(self, which: int, rather: list[Live] | None = None) -> Live:
        """One of those if there are any, else any."""
        choice = rather or self.live
        return choice[which % len(choice)]

    def _decoding(self) -> list[Live]:
        return [live for live in self.live if not live.model.parked and not live.model.lost]

    def _leaves(self) -> list[Prefix]:
        parents = {block[:-1] for block in self.model.ranks}
        return [block for block in self.model.ranks if block not in parents]

    def _media(self, tokens: list[int], image: int, at: int) -> tuple[MediaSpan, ...]:
        if image >= len(_IMAGES) or at >= len(tokens) or self.model.block_tokens < _MEDIA_BLOCK_TOKENS:
            return ()
        return (MediaSpan(start=at, token_count=min(5, len(tokens) - at), digest=_IMAGES[image]),)

    def _begin(
        self,
        tokens: list[int],
        media: tuple[MediaSpan, ...],
        space: int,
        *,
        skip_read: bool = False,
        skip_write: bool = False,
    ) -> Live:
        namespace = self.spaces[space]
        buffer = np.array(tokens, np.int32)
        prompt = Prompt.of_tokens(buffer, media=media)
        buffer[:] = _PAD  # an engine reuses its buffers
        self.ordinal += 1
        sequence = self.store.begin(
            prompt, namespace=namespace, request_id=self.ordinal, skip_read=skip_read, skip_write=skip_write
        )
        model = self.model.begin(namespace.digest, tokens, media, skip_read=skip_read, skip_write=skip_write)
        found = 0 if skip_read else self.model.match(namespace.digest, tokens, media)
        assert sequence.matched_tokens == found * self.model.block_tokens
        assert sequence.cached_tokens == model.shared * self.model.block_tokens == model.hit_tokens
        assert sequence.cached_tokens < len(tokens)
        live = Live(sequence, model, Content(namespace.digest, list(tokens), media), written=model.shared)
        self.live.append(live)
        self._check_live(live)
        return live

    def _append(self, live: Live, tokens: list[int]) -> None:
        live.sequence.append(tokens)
        live.model.tokens += tokens
        live.content.tokens += tokens
        assert live.sequence.token_count == len(live.model.tokens)

    def _reserve(self, live: Live, through: int) -> bool:
        """Whether there was room."""
        if live.model.lost or live.model.parked:
            _refused(InvalidRequest, lambda: live.sequence.reserve(through=through))
            return False
        had = len(live.sequence.page_table)
        expected = self.model.reserve(live.model, through=through)
        if expected is not None:
            refused = _refused(OutOfPages, lambda: live.sequence.reserve(through=through))
            assert (refused.needed, refused.free, refused.evictable) == expected
            return False
        live.sequence.reserve(through=through)
        self.pages.garble(live.sequence.page_table[had:].tolist())
        return True

    def _reserve_batch(self, batch: SequenceBatch, batch_of: list[Live]) -> bool:
        need = sum(self.model.shortfall(live.model, len(live.model.tokens) + 1) for live in batch_of)
        had = [len(live.sequence.page_table) for live in batch_of]
        if need > self.model.free + self.model.evictable:
            self.model.counts["out_of_pages"] += 1
            refused = _refused(OutOfPages, lambda: batch.reserve(ahead=1))
            assert (refused.needed, refused.free, refused.evictable) == (need, self.model.free, self.model.evictable)
            return False
        batch.reserve(ahead=1)
        for live, pages in zip(batch_of, had, strict=True):
            if self.model.shortfall(live.model, len(live.model.tokens) + 1):
                self.model.reserve(live.model, through=len(live.model.tokens) + 1)
            self.pages.garble(live.sequence.page_table[pages:].tolist())
        return True

    def _commit(self, live: Live, through: int, *, fold: bool) -> None:
        sequence = live.sequence
        if live.model.lost or live.model.parked:
            _refused(InvalidRequest, lambda: sequence.commit(through=through))
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

    def _write(self, live: Live, through: int) -> None:
        """The engine computes what it has room for and nobody computed, in its own pages only."""
        end = through // self.model.block_tokens
        start = max(live.written, live.model.shared)
        if end > start:
            self.pages.write(live.sequence.page_table, live.content, start=start, end=end)
        live.written = max(live.written, end)

    def _end(self, live: Live, *, used: bool) -> None:
        self.live.remove(live)
        if used:
            live.sequence.release()
        else:
            live.sequence.abandon()
        self.model.end(live.model, used=used)
        self.ended = [*self.ended[-3:], live.sequence]

    def _check_live(self, live: Live) -> None:
        model, sequence = live.model, live.sequence
        assert sequence.is_lost == bool(model.lost)
        assert sequence.committed_tokens == model.shared * self.model.block_tokens
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
        if self.before is not None:
            assert all(getattr(stats, name) >= getattr(self.before, name) for name in _COUNTERS)
        self.before = stats

    def _check_explanation(self, tokens: list[int], media: tuple[MediaSpan, ...], space: int) -> None:
        size, (mine, other) = self.model.block_tokens, (self.spaces[space], self.spaces[1 - space])
        full = len(tokens) // size
        explanation = self.store.explain(Prompt.of_tokens(tokens, media=media), namespace=mine)
        ends = [0]
        for span in explanation.spans:
            assert span.start_block == ends[-1] < span.end_block, "spans must tile the prompt"
            ends.append(span.end_block)
        assert ends[-1] == -(-len(tokens) // size)
        fates = [span.fate for span in explanation.spans for _ in range(span.start_block, span.end_block)]
        blocks = self.model.blocks(tokens, media, full)
        hit = self.model.resident(mine.digest, blocks)
        elsewhere = self.model.resident(other.digest, blocks)
        for block, fate in enumerate(fates):
            assert (fate is BlockFate.HIT) == (block < hit)
            assert (fate is BlockFate.PARTIAL) == (block >= full)
            if fate is BlockFate.EVICTED:
                # The log remembers a run by its first block only, so a prompt that diverges inside it is told the same.
                known = (mine.digest, *blocks[:1])
                assert known in self.model.ever, "evicted, but nothing that begins like this was ever there"
            if fate is BlockFate.OTHER_NAMESPACE:
                assert block < elsewhere
        assert all(span.differing_fields in ((), ("salt",)) for span in explanation.spans)


def _refused(kind: type[E], call: Callable[[], object]) -> E:
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


class FifoStoreMachine(StoreMachine):
    policy = FifoPolicy


_quick = settings(max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck))
_long = settings(_quick, max_examples=1500, stateful_step_count=60)


class TestLruStore(StoreMachine.TestCase):
    settings = _quick


class TestFifoStore(FifoStoreMachine.TestCase):
    settings = _quick


@pytest.mark.slow
class TestLruStoreLong(StoreMachine.TestCase):
    settings = _long


@pytest.mark.slow
class TestFifoStoreLong(FifoStoreMachine.TestCase):
    settings = _long
