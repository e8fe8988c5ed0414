"""One running request: from its match, through the pages it writes, to what it leaves in the cache.

A sequence's page table, in blocks::

    |<---- shared ---->|<------ own ------>|
    0               _shared            len(_pages)
    pages of the tree,   reserved for this request: being written, or full and not yet committed
    pinned through _node

``_node`` ends at ``_shared``, or one block further on when the whole prompt was found: the last token is always
computed, so its block gets a page of our own, which the next commit folds into the tree's. Publishing never waits: a
block can be matched by others the moment it is committed, while its request still runs.

INV-10: ``_node`` is pinned once by every running sequence; own pages are in no node and in no other sequence.
"""

from __future__ import annotations

import operator
from array import array
from types import TracebackType
from typing import Final, NamedTuple, NoReturn, Self, SupportsIndex, final
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from kvstore.core import Core
from kvstore.errors import InvalidRequest, SequenceLost
from kvstore.namespace import SymbolKind
from kvstore.prefix_tree import Node, Root, pages_to, walk
from kvstore.prompt import Prompt, TokenIds, fold_media, join_names, pack_tokens
from kvstore.token_buffer import TokenBuffer

__all__ = ["Commit", "Sequence"]

_INT32: Final = np.dtype(np.int32)  # a dtype costs 0.1 us less than the type it is made of
_NOTHING: Final = range(0)
_NO_PAGES: Final = array("i")
_RUNNING, _PARKED, _ENDED = "running", "parked", "ended"


class Commit(NamedTuple):
    """What a commit did."""

    tokens: int  #: leading tokens whose pages are shared now
    remapped: (
        range  #: blocks of the page table whose page changed, since the tree already had them; read the table again
    )


@final
class Sequence:
    """One running request. Made by ``KVStore.begin``; a context manager that releases, or abandons on an exception."""

    __slots__ = (
        "__weakref__",
        "_admitted",
        "_buffer",
        "_core",
        "_grown",
        "_media",
        "_node",
        "_ordinal",
        "_pages",
        "_private",
        "_root",
        "_row",
        "_shared",
        "_skip_read",
        "_skip_write",
        "_state",
        "_symbols",
        "begun_ns",
        "cached_tokens",
        "matched_tokens",
        "prompt_tokens",
        "request_id",
        "token_count",
    )

    def __init__(
        self,
        core: Core,
        root: Root,
        prompt: Prompt,
        symbols: bytes,
        request_id: int | str | None,
        skip_read: bool,
        skip_write: bool,
        begun_ns: int,
    ) -> None:
        """Match and pin. Called by the store, with the lock held."""
        self._state = _ENDED  # until there is something to end
        self._core = core
        self._root = root
        self._symbols: bytes | bytearray = symbols
        self._media = prompt.media
        self._skip_read = skip_read
        self._skip_write = skip_write
        self._admitted = False
        self._buffer: TokenBuffer | None = None  #: holds, in our ``_row``, tokens that we do not know yet
        self._grown: Node | None = None
        self._private: array[int] | None = None
        self.request_id = request_id
        self.begun_ns = begun_ns
        #: known tokens, prompt and appended; a batch knows those that it buffers
        self.prompt_tokens = self.token_count = prompt.token_count
        self._ordinal = ordinal = core.next_ordinal
        core.next_ordinal = ordinal + 1
        #: leading tokens that were resident at begin, in whole blocks; all of them are pinned
        self.matched_tokens = self._match(symbols)
        core.live[ordinal] = ref(self)
        self._state = _RUNNING

    def _match(self, symbols: bytes) -> int:
        """Find and pin; returns the tokens found."""
        core, root = self._core, self._root
        block_tokens, tokens = core.block_tokens, self.token_count
        residency = core.residency
        node: Node = root
        if not self._skip_read:  # ``residency.descend``, written out: the hottest lines of all
            limit = tokens // block_tokens * root.symbol_bytes
            node, at = walk(root, symbols, limit, root.symbol_bytes)
            if at < limit and node.children:
                node = residency.descend_inside(node, root, symbols, at, limit)
        residency.pin(node)
        self._node = node
        usable = (tokens - 1) // block_tokens
        self._pages = pages = node.pages[:usable] if node.parent is root else pages_to(node, usable)
        self._shared = shared = len(pages)
        #: leading tokens whose KV is ready to use; at least the last token is left to compute
        self.cached_tokens = shared * block_tokens
        return (node.first_block + len(node.pages)) * block_tokens

    def __repr__(self) -> str:
        pages = f"{min(self._shared, len(self._pages))} of {len(self._pages)} pages shared"
        return f"Sequence({self.request_id!r}, {self._state}, {self.token_count} tokens, {pages})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.release()
        else:
            self.abandon()

    def __del__(self) -> None:
        # May run at any moment in any thread, also while this very thread holds the lock: only queue it.
        if self._state != _ENDED:
            self._core.dropped.append((self, None))

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("a sequence owns pages: it cannot be copied or pickled")

    @property
    def page_table(self) -> NDArray[np.int32]:
        """Page ids in token order: [blocks reserved or shared] int32, a read-only snapshot. Empty once ended or
        parked.
        """
        return np.frombuffer(self._pages.tobytes(), _INT32)

    @property
    def reserved_tokens(self) -> int:
        """Tokens that the page table has room for."""
        return len(self._pages) * self._core.block_tokens

    @property
    def committed_tokens(self) -> int:
        """Leading tokens whose pages are shared."""
        return self._shared * self._core.block_tokens

    def reserve(self, *, through: int) -> None:
        """Have pages for the tokens in ``[0, through)``; may run ahead of the known tokens.

        Pages come from the free ones first, then by evicting exactly the shortfall, coldest first.

        Raises:
            OutOfPages: free and evictable pages are too few; nothing was changed.
            InvalidRequest: the sequence has ended or is parked, or ``through`` is not a position.
            SequenceLost: the store was reset by force.
        """
        through = _position(through)
        core = self._core
        core.check_usable()
        with core.lock, core.guard:
            if core.dropped:
                core.sweep()
            need = self.pages_short(through)
            if need:
                self.let_last_block_go(need)
            self.grant(core.take(need, by=self.request_id) if need else _NO_PAGES)

    def append(self, tokens: TokenIds) -> None:
        """More tokens are known: generated, or accepted from a draft. Nothing rolls back.

        Raises:
            InvalidRequest: bad token ids, a sequence of names, or one that has ended.
        """
        self._leave_batch()
        self.append_alone(tokens)

    def append_alone(self, tokens: TokenIds) -> None:
        """``append`` for the batch that buffered these tokens."""
        packed = pack_tokens(tokens)
        self._core.check_usable()
        with self._core.lock:
            if self._root.namespace.format.kind is not SymbolKind.TOKENS:
                raise InvalidRequest("this sequence is known by names; use append_names")
            self._extend(packed, self.token_count + (len(packed) >> 2))

    def append_names(self, names: NDArray[np.integer] | list[bytes], *, token_count: int) -> None:
        """More blocks are known by name; ``token_count`` is the new total.

        Raises:
            InvalidRequest: the names do not fit the format or the count, or the sequence has ended.
        """
        width, packed = join_names(names)
        token_count = _position(token_count)
        self._core.check_usable()
        with self._core.lock:
            blocks = self._root.namespace.format
            if blocks.kind is not SymbolKind.NAMES:
                raise InvalidRequest("this sequence is known by tokens; use append")
            have = (len(self._symbols) + len(packed)) // blocks.symbol_bytes
            if (
                (packed and width != blocks.symbol_bytes)
                or token_count < self.token_count
                or have != token_count // blocks.block_tokens
            ):
                raise InvalidRequest(
                    f"{token_count} tokens have {token_count // blocks.block_tokens} full blocks, not {have}"
                )
            self._extend(packed, token_count)

    def commit(self, *, through: int, fold: bool = True) -> Commit:
        """Publish the full blocks of the tokens in ``[0, through)``, which a forward pass has written.

        Monotone and idempotent. A block that the tree has by now is folded: its entry in the page table becomes the
        tree's page and ours is freed, after the table was changed.

        Args:
            through: never past what was really written: the last sampled token has no KV yet.
            fold: ``False`` keeps our own page for such a block, private to this sequence; until the end both pages
                are held.

        Raises:
            InvalidRequest: past the known tokens or the reserved pages, or the sequence has ended; nothing was changed.
            SequenceLost: the store was reset by force.
        """
        self._leave_batch()
        return self.commit_alone(_position(through), fold=fold)

    def commit_alone(self, through: int, *, fold: bool) -> Commit:
        """``commit`` for the batch that handed over its tokens."""
        core = self._core
        core.check_usable()
        with core.lock, core.guard:
            if self._state != _RUNNING or self._root.lost:
                self.check_running()
            full = through // core.block_tokens
            if through > self.token_count:
                raise InvalidRequest(f"cannot commit through {through}: {self.token_count} tokens are known")
            if full > len(self._pages):
                raise InvalidRequest(
                    f"cannot commit through {through}: pages are reserved for {self.reserved_tokens} tokens"
                )
            if self._skip_write or full <= self._shared:
                return Commit(self._shared * core.block_tokens, _NOTHING)
            node = self._node
            remapped = self._join_tree(full, fold) if node.children or node.end_block > self._shared else _NOTHING
            if full > self._shared:
                self._publish(full)
            return Commit(self._shared * core.block_tokens, remapped)

    def park(self) -> None:
        """Preempt: unpin what is shared, free what is not. ``resume`` matches again. Idempotent.

        Raises:
            InvalidRequest: the sequence has ended.
            SequenceLost: the store was reset by force.
        """
        self._leave_batch()
        core = self._core
        core.check_usable()
        with core.lock, core.guard:
            self._check_not_lost()
            if self._state == _PARKED:
                return
            self.check_running()
            if not self._admitted:
                self._admit()  # now: once resumed, what it holds is no longer what begin found
            self._free_own()
            core.residency.pin(self._root)
            core.residency.unpin(self._node)
            self._node, self._grown = self._root, None
            self._pages, self._shared, self.cached_tokens = array("i"), 0, 0
            self._state = _PARKED
            core.interruption_count += 1
            core.trim(by=self.request_id)

    def resume(self) -> int:
        """Match all known tokens again and pin; returns ``cached_tokens``, which counts as resumed, not as hit.

        Raises:
            InvalidRequest: the sequence is not parked.
            SequenceLost: the store was reset by force.
        """
        core = self._core
        core.check_usable()
        with core.lock, core.guard:
            self._check_not_lost()
            if self._state != _PARKED:
                raise InvalidRequest(f"only a parked sequence can resume, this one is {self._state}")
            self._state = _RUNNING
            if not self._skip_write:
                self._skip_read = False  # its own blocks, at least, must be found again
            self._match(bytes(self._symbols))
            core.residency.unpin(self._root)  # only now: an unpinned empty root vanishes
            core.counters.resumed_tokens += self.cached_tokens
            return self.cached_tokens

    def release(self) -> None:
        """The request ended: free what was not committed, unpin the rest, tell the policy of the use. Idempotent."""
        if self._buffer is not None:
            self._leave_batch()
        core = self._core
        if core.entered():
            self._end_later(used=True)
            return
        with core.lock:  # and the guard, written out: every request comes here
            try:
                self.end(used=True)
            except BaseException:
                core.break_off()
                raise

    def abandon(self) -> None:
        """As ``release``, but the request counts neither as admitted nor as a use: it was refused or broke off."""
        self._leave_batch()
        core = self._core
        if core.entered():
            self._end_later(used=False)
            return
        with core.lock, core.guard:
            self.end(used=False)

    def _end_later(self, *, used: bool) -> None:
        """Called from inside the store (by a generator that the collector closes, say): the next call ends it."""
        if self._core.is_broken:
            self._state = _ENDED
        elif self._state != _ENDED:
            self._core.dropped.append((self, used))

    def end(self, *, used: bool) -> None:
        """End with the lock held; see ``release`` and ``abandon``."""
        if self._state == _ENDED:
            return
        core, node = self._core, self._node
        del core.live[self._ordinal]
        if self._root.lost:
            self._end_lost()
            return
        if len(self._pages) > self._shared or self._private is not None:
            self._free_own()
        residency = core.residency
        if used:
            if not self._admitted:
                self._admit()
            residency.used(self, node)
        residency.unpin(node)
        self._state = _ENDED
        self._pages = _NO_PAGES
        if residency.cached_count > core.retained_count_max:
            core.trim(by=self.request_id)

    def join(self, buffer: TokenBuffer, row: int) -> None:
        """From now on this row of a batch's buffer holds our newest tokens; what another holds we take first."""
        if self._buffer is not buffer:
            self._leave_batch()
            self._buffer, self._row = buffer, row

    def _leave_batch(self) -> None:
        buffer = self._buffer
        if buffer is not None:
            self._buffer, buffer.touched = None, True
            tokens = buffer.take(self._row)
            if len(tokens) and self._state != _ENDED and not self._core.entered():
                self.append_alone(tokens)

    def check_batched(self, core: Core) -> None:
        """Raise unless a batch of this core may count this sequence's tokens."""
        if self._core is not core:
            raise InvalidRequest("a sequence of another store")
        if self._root.namespace.format.kind is not SymbolKind.TOKENS:
            raise InvalidRequest("a batch is of sequences known by tokens, this one is known by names")

    def check_running(self) -> None:
        """Raise unless the sequence runs and has its prefix; see ``reserve``."""
        self._check_not_lost()
        if self._state != _RUNNING:
            raise InvalidRequest(
                "the sequence has ended" if self._state == _ENDED else f"the sequence is {self._state}"
            )

    def pages_short(self, through: int) -> int:
        """With the lock held: pages that a reservation through this position would have to take; checks that it may."""
        if self._state != _RUNNING or self._root.lost:
            self.check_running()
        need = -(-through // self._core.block_tokens) - len(self._pages)
        return need if need > 0 else 0

    def grant(self, pages: array[int]) -> None:
        """With the lock held: a reservation succeeded, which admits the request."""
        self._pages += pages
        if not self._admitted:
            self._admit()

    @property
    def is_lost(self) -> bool:
        """Whether a forced reset took this sequence's prefix out of the cache."""
        return self._root.lost

    def holdings(self) -> tuple[Node, array[int]]:
        """For the audit, with the lock held: the pinned node and the pages that are ours alone."""
        own = self._pages[self._shared :]
        if self._private is not None:
            own += self._private
        return self._node, own

    def let_last_block_go(self, need: int) -> None:
        """Stop pinning the tree's copy of the last block, if its page is the one that a reservation lacks.

        Where the whole prompt was found, its last block is computed again into a page of our own; with the tree's copy
        pinned meanwhile, a prompt as long as the pool could never run twice.
        """
        core, residency, node = self._core, self._core.residency, self._node
        if node.end_block == self._shared:
            return
        available = core.allocator.free_count + residency.evictable_count
        if need == available + 1 and node.hold == 1:
            upper = residency.cut_above(node, self._shared, self._root, bytes(self._symbols))
            residency.pin(upper)
            residency.unpin(node)
            self._node = upper

    def _join_tree(self, full: int, fold: bool) -> range:
        """Follow the tree as far as it has our next blocks, and fold them."""
        core, residency, node = self._core, self._core.residency, self._node
        if node.children and node.end_block < full:
            target = residency.descend(node, self._root, bytes(self._symbols), full)
            if target is not node:
                residency.move_pin(node, target)
                self._node = node = target
        start, end = self._shared, min(node.end_block, full)
        if end <= start:
            return _NOTHING
        own = self._pages[start:end]
        core.counters.duplicate_blocks += end - start
        self._shared = end
        if not fold:
            self._private = (self._private or array("i")) + own
            return _NOTHING
        self._pages[start:end] = pages_to(node, end)[start:]
        core.allocator.give(own)  # only now: nobody can get a page that our table still names
        return range(start, end)

    def _publish(self, full: int) -> None:
        """Put our next blocks into the tree; ``_node`` ends where they begin."""
        core, node, start = self._core, self._node, self._shared
        pages = self._pages[start:full]
        if node is self._grown and node.hold == 1 and not node.children:
            width = self._root.symbol_bytes
            with memoryview(self._symbols) as view:
                core.residency.grow(node, view[start * width : full * width], pages)
        else:
            self._node = self._grown = core.residency.publish(node, self._root, self._symbols, pages)
        core.counters.published_blocks += full - start
        self._shared = full

    def _extend(self, packed: bytes, token_count: int) -> None:
        if self._state == _ENDED:
            raise InvalidRequest("the sequence has ended")
        if type(self._symbols) is bytes:
            self._symbols = bytearray(self._symbols)
        self._symbols += packed
        self.token_count = token_count
        if self._media:
            self._fold_media()

    def _fold_media(self) -> None:
        """Fold media into the prompt's last block once it is full; ``begin`` has folded those before it.

        At once, not at its commit: whoever looks at our symbols must never see a placeholder in a full block.
        """
        block_tokens = self._core.block_tokens
        last = self.prompt_tokens // block_tokens
        if self.token_count >= (last + 1) * block_tokens:
            spans = self._media
            self._symbols = bytearray(
                fold_media(bytes(self._symbols), spans, block_tokens=block_tokens, first_block=last)
            )
            self._media = ()

    def _admit(self) -> None:
        counters = self._core.counters
        self._admitted = True
        counters.requests += 1
        if not self._skip_read:
            counters.queried_tokens += self.prompt_tokens
            counters.hit_tokens += self.cached_tokens

    def _free_own(self) -> None:
        _, own = self.holdings()
        self._private = None
        if own:
            self._core.allocator.give(own)

    def _end_lost(self) -> None:
        core, root = self._core, self._root
        self._free_own()
        core.allocator.give(core.residency.let_go(self._node, root))
        if not root.children and not root.pins:
            core.lost.remove(root)
        self._state = _ENDED
        self._pages = array("i")

    def _check_not_lost(self) -> None:
        if self._root.lost and self._state != _ENDED:
            raise SequenceLost("the store was reset by force while this sequence ran; release it and begin again")


def _position(through: int) -> int:
    if type(through) is int and through >= 0:
        return through
    try:
        position = operator.index(through)
    except TypeError as wrong:
        raise InvalidRequest(f"a position is a whole number of tokens, got {through!r}") from wrong
    if isinstance(through, bool) or position < 0:
        raise InvalidRequest(f"a position is a whole number of tokens from 0, got {through!r}")
    return position
