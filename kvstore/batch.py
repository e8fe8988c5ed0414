"""Many sequences, one step: what costs nothing for the sequences that stay inside their page.

A decoding batch gains one token for each sequence a step, and only one in ``block_tokens`` of them then fills a block.
So the batch keeps its members' counts in arrays, buffers tokens in one matrix, and touches a sequence only when it
crosses a block.

A member that is used directly meanwhile, or taken into another batch, first gets the tokens that are buffered for it;
the batch then looks at all of its members anew. So nothing is lost or reordered, it only costs O(members) once.
"""

from __future__ import annotations

from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from kvstore.core import Core
from kvstore.errors import InvalidRequest
from kvstore.sequence import Commit, Sequence
from kvstore.token_buffer import TokenBuffer

__all__ = ["SequenceBatch"]

_AHEAD_MAX: Final = 1 << 30  # beyond any pool; keeps the sum of positions inside 64 bits


@final
class SequenceBatch:
    """Token sequences of one store that decode in step. When one of them has ended, make a batch of the others.

    Shapes:
        every array argument: [number of sequences], in the order given at construction
    """

    __slots__ = ("_buffer", "_core", "_counts", "_room", "_shared", "_stop_count", "sequences")

    def __init__(self, core: Core, sequences: tuple[Sequence, ...]) -> None:
        if len(set(map(id, sequences))) != len(sequences):
            raise InvalidRequest("a sequence is in the batch twice")
        for member in sequences:
            if not isinstance(member, Sequence):
                raise InvalidRequest(f"a batch is of sequences, got {type(member).__name__}")
            member.check_batched(core)
        self._core = core
        self.sequences = sequences
        self._buffer = TokenBuffer(len(sequences), core.block_tokens)
        self._counts = np.zeros(len(sequences), np.int64)
        self._room = np.zeros(len(sequences), np.int64)
        self._shared = np.zeros(len(sequences), np.int64)
        self._stop_count = -1
        self._look_again()

    def __repr__(self) -> str:
        return f"SequenceBatch({len(self.sequences)} sequences, {int(self._buffer.fill.sum())} tokens buffered)"

    @property
    def token_counts(self) -> NDArray[np.int64]:
        """Known tokens of each sequence, those that wait here included."""
        return np.array([member.token_count for member in self.sequences], np.int64) + self._buffer.fill

    def append(self, tokens: NDArray[np.integer]) -> None:
        """One more token is known for each sequence.

        Raises:
            InvalidRequest: not one id in ``[0, 2**31)`` for each; nothing was changed.
        """
        tokens = self._row_of_integers("token ids", tokens)
        if tokens.size and (tokens.min() < 0 or tokens.max() >= 1 << 31):
            raise InvalidRequest(f"token ids lie in [0, 2**31), got {int(tokens.min())} to {int(tokens.max())}")
        buffer = self._buffer
        full = np.flatnonzero(buffer.fill == buffer.tokens.shape[1])
        if full.size:
            self._flush_rows(full)
        buffer.tokens[np.arange(len(self.sequences)), buffer.fill] = tokens
        buffer.fill += 1
        self._counts += 1

    def reserve(self, *, ahead: int = 1) -> None:
        """Have pages for ``ahead`` tokens beyond the known ones, for every sequence or for none.

        Raises:
            OutOfPages: free and evictable pages are too few for all; nothing was changed. Park one and try again.
        """
        if type(ahead) is not int or not 0 <= ahead <= _AHEAD_MAX:
            raise InvalidRequest(f"ahead is a whole number of tokens in [0, {_AHEAD_MAX}], got {ahead!r}")
        self._look_again()
        core = self._core
        through = self._counts + ahead
        rows = np.flatnonzero(through > self._room)
        if not rows.size:
            return
        core.check_usable()
        with core.lock, core.guard:
            core.sweep()
            short = [(self.sequences[row], self.sequences[row].pages_short(int(through[row]))) for row in rows.tolist()]
            needed = sum(need for _, need in short)
            for member, need in short:
                if need:
                    member.let_last_block_go(needed)
            pages = core.take(needed, by=None)
            for member, need in short:
                member.grant(pages[:need])
                del pages[:need]
        self._room[rows] = [member.reserved_tokens for member, _ in short]

    def commit(self, through: NDArray[np.integer]) -> dict[int, Commit]:
        """Publish the full blocks that a forward pass has written, as ``Sequence.commit`` does.

        Args:
            through: positions, one for each sequence.

        Returns:
            what happened, for the rows that crossed a block; most steps it is empty.

        Raises:
            InvalidRequest: a position is past the known tokens or the reserved pages; nothing was changed.
        """
        block_tokens = self._core.block_tokens
        through = self._row_of_integers("positions", through)
        if (through < 0).any() or (through > self._counts).any():
            raise InvalidRequest("cannot commit past the known tokens of a sequence, nor below 0")
        crossing = np.flatnonzero(through // block_tokens > self._shared // block_tokens)
        if not crossing.size:
            return {}
        # Asked anew: a member may have reserved by itself since.
        room = np.array([self.sequences[row].reserved_tokens for row in crossing.tolist()])
        if (through[crossing] // block_tokens * block_tokens > room).any():
            raise InvalidRequest("cannot commit past the reserved pages of a sequence")
        self._flush_rows(crossing)
        done = {}
        for row in crossing.tolist():
            change = done[row] = self.sequences[row].commit_alone(int(through[row]), fold=True)
            self._shared[row] = change.tokens
        return done

    def page_tables(self, out: NDArray[np.int32]) -> NDArray[np.int64]:
        """Write each sequence's page table into its row of ``out``; what lies behind it is left alone.

        Shapes:
            out: [number of sequences, at least the longest page table] int32
            returns: [number of sequences] how many pages each row has
        """
        counts = np.zeros(len(self.sequences), np.int64)
        tables = [member.page_table for member in self.sequences]
        need = (len(tables), max(map(len, tables), default=0))
        if out.dtype != np.int32 or out.ndim != 2 or len(out) != need[0] or out.shape[1] < need[1]:
            raise InvalidRequest(f"out is {out.dtype} of shape {out.shape}, need int32 [{need[0]}, {need[1]}] or wider")
        for row, table in enumerate(tables):
            out[row, : len(table)] = table
            counts[row] = len(table)
        return counts

    def flush(self) -> None:
        """Hand every buffered token to its sequence. Not needed for safety: a member takes its own when it is used."""
        self._flush_rows(np.flatnonzero(self._buffer.fill))

    def _row_of_integers(self, what: str, values: NDArray[np.integer]) -> NDArray[np.integer]:
        """The argument as it must be, for members that all run."""
        self._look_again()
        found = np.asarray(values)
        if found.shape != self._counts.shape or found.dtype.kind not in "iu":
            raise InvalidRequest(f"need {len(self.sequences)} {what}, got {found.dtype} of shape {found.shape}")
        return found

    def _look_again(self) -> None:
        """Every member must run, and be counted as it is; looked at only when something may have changed."""
        buffer = self._buffer
        if not buffer.touched and self._stop_count == self._core.stop_count:
            return
        for member in self.sequences:
            member.check_running()
        for row, member in enumerate(self.sequences):
            member.join(buffer, row)
            self._counts[row] = member.token_count + buffer.fill[row]
            self._room[row] = member.reserved_tokens
            self._shared[row] = member.committed_tokens
        buffer.touched, self._stop_count = False, self._core.stop_count

    def _flush_rows(self, rows: NDArray[np.intp]) -> None:
        for row in rows.tolist():
            tokens = self._buffer.take(row)
            if len(tokens):
                self.sequences[row].append_alone(tokens)
