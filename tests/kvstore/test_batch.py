"""A batch does what its members would have done one by one, for all of them or for none."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kvstore import (
    BlockFormat,
    InvalidRequest,
    KVStore,
    Namespace,
    OutOfPages,
    Prompt,
    Sequence,
    SequenceBatch,
    SequenceLost,
)
from transfer import VirtualPagePool

_P = 4


def _store(page_count: int = 64) -> KVStore:
    return KVStore(VirtualPagePool(page_count=page_count, block_tokens=_P))


def _running(store: KVStore, *lengths: int) -> list[Sequence]:
    """Requests with prompts of these lengths, all different, computed."""
    sequences = []
    for number, length in enumerate(lengths):
        sequence = store.begin(Prompt.of_tokens([number] * length))
        sequence.reserve(through=length)
        sequence.commit(through=length)
        sequences.append(sequence)
    return sequences


def _row(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("block_tokens", [1, 2, 3, 4])
def test_a_batch_equals_its_members_one_by_one(seed: int, block_tokens: int) -> None:
    chance = random.Random(seed)
    lengths = [chance.randint(1, 9) for _ in range(chance.randint(0, 5))]
    stores = [KVStore(VirtualPagePool(page_count=200, block_tokens=block_tokens)) for _ in range(2)]
    together, alone = ([store.begin(Prompt.of_tokens([0] * length)) for length in lengths] for store in stores)
    for sequence in [*together, *alone]:
        sequence.reserve(through=sequence.token_count)
        sequence.commit(through=sequence.token_count)
    batch = stores[0].batch(together)
    for _ in range(25):
        batch.reserve(ahead=1)
        tokens = [chance.randrange(2) for _ in lengths]
        batch.append(np.array(tokens, np.int32))
        through = batch.token_counts - chance.randrange(2)
        done = batch.commit(through)
        for row, sequence in enumerate(alone):
            sequence.reserve(through=sequence.token_count + 1)
            sequence.append([tokens[row]])
            change = sequence.commit(through=int(through[row]))
            if row in done:
                assert done[row] == change
        assert stores[0].stats() == stores[1].stats()
    batch.flush()
    assert [member.token_count for member in together] == [member.token_count for member in alone]
    for member in [*together, *alone]:
        member.release()
    for store in stores:
        store.audit()
    assert stores[0].stats() == stores[1].stats()


def test_most_steps_touch_no_sequence() -> None:
    store = _store()
    members = _running(store, 8, 9)
    batch = store.batch(members)
    batch.reserve(ahead=4)
    for _ in range(3):
        batch.append(_row(5, 5))
    assert [member.token_count for member in members] == [8, 9], "buffered"
    assert batch.token_counts.tolist() == [11, 12]
    done = batch.commit(batch.token_counts)
    assert list(done) == [1]
    assert done[1].tokens == 12
    assert [member.token_count for member in members] == [8, 12]
    batch.flush()
    batch.flush()
    assert [member.token_count for member in members] == [11, 12]


def test_pages_are_reserved_for_all_or_for_none() -> None:
    store = _store(page_count=6)
    members = _running(store, 8, 8)
    batch = store.batch(members)
    with store.begin(Prompt.of_tokens([9])) as hog:
        hog.reserve(through=1)
        before = store.stats()
        with pytest.raises(OutOfPages) as refused:
            batch.reserve()
        assert (refused.value.needed, refused.value.free, refused.value.evictable) == (2, 1, 0)
        after = store.stats()
        assert after.free_pages == before.free_pages
        assert after.out_of_pages == before.out_of_pages + 1
        assert [member.reserved_tokens for member in members] == [8, 8]
    batch.reserve()
    assert [member.reserved_tokens for member in members] == [12, 12]
    batch.reserve()
    assert store.stats().free_pages == 0


def test_a_reservation_may_run_ahead_for_a_draft() -> None:
    store = _store()
    batch = store.batch(_running(store, 8, 5))
    batch.reserve(ahead=7)
    assert [member.reserved_tokens for member in batch.sequences] == [16, 12]


def test_a_reservation_admits_the_members() -> None:
    store = _store()
    batch = store.batch([store.begin(Prompt.of_tokens([number])) for number in range(3)])
    assert store.stats().requests == 0
    batch.reserve()
    assert store.stats().requests == 3


def test_what_was_dropped_is_found_before_a_batch_is_refused() -> None:
    store = _store(page_count=4)
    batch = store.batch(_running(store, 8))
    dropped = store.begin(Prompt.of_tokens([9]))
    dropped.reserve(through=8)
    del dropped
    batch.reserve()


def test_a_page_that_a_member_reserved_by_itself_counts() -> None:
    store = _store()
    members = _running(store, 3)
    batch = store.batch(members)
    batch.append(_row(7))
    members[0].reserve(through=8)
    for _ in range(4):
        batch.append(_row(7))
    assert batch.commit(_row(8))[0].tokens == 8


@pytest.mark.parametrize(
    "tokens",
    [
        pytest.param(_row(1), id="too few"),
        pytest.param(_row(1, 2, 3), id="too many"),
        pytest.param(np.array(1), id="one for all"),
        pytest.param(np.array([[1, 2]]), id="two rows"),
        pytest.param(np.array([1.0, 2.0]), id="floats"),
        pytest.param(np.array([True, False]), id="bools"),
        pytest.param(np.array([1, 2], object), id="objects"),
        pytest.param(_row(1, -1), id="negative"),
        pytest.param(_row(1, 2**31), id="too large"),
        pytest.param(np.array([0, 2**64 - 1], np.uint64), id="wraps"),
        pytest.param("ab", id="a string"),
        pytest.param(None, id="nothing"),
    ],
)
def test_tokens_that_are_not_one_for_each_are_refused(tokens: object) -> None:
    store = _store()
    batch = store.batch(_running(store, 8, 5))
    with pytest.raises(InvalidRequest):
        batch.append(tokens)
    assert batch.token_counts.tolist() == [8, 5]
    batch.append(_row(1, 2))
    assert batch.token_counts.tolist() == [9, 6]


@pytest.mark.parametrize(
    "through",
    [
        pytest.param(_row(12), id="too few"),
        pytest.param(np.array(12), id="one for all"),
        pytest.param(np.array([12.0, 4.0]), id="floats"),
        pytest.param(None, id="nothing"),
        pytest.param(_row(13, 5), id="past the known tokens"),
        pytest.param(_row(8, 10), id="the second is past the known tokens"),
        pytest.param(_row(12, 8), id="the first is past the reserved pages"),
    ],
)
def test_a_commit_past_what_is_known_or_reserved_changes_nothing(through: object) -> None:
    store = _store()
    members = _running(store, 8, 5)
    batch = store.batch(members)
    for _ in range(4):
        batch.append(_row(1, 1))
    before = store.stats()
    with pytest.raises(InvalidRequest):
        batch.commit(through)
    assert store.stats() == before
    assert [member.committed_tokens for member in members] == [8, 4]
    assert batch.commit(_row(8, 9))[1].tokens == 8


def test_a_sequence_is_in_a_batch_once() -> None:
    store = _store()
    (member,) = _running(store, 3)
    with pytest.raises(InvalidRequest, match="twice"):
        store.batch([member, member])


@pytest.mark.parametrize("stop", ["release", "abandon", "park"])
def test_a_batch_whose_member_has_stopped_refuses_everything(stop: str) -> None:
    store = _store()
    members = _running(store, 8, 5)
    batch = store.batch(members)
    batch.append(_row(1, 1))
    getattr(members[1], stop)()
    before = store.stats()
    for call in (batch.reserve, lambda: batch.append(_row(1, 1)), lambda: batch.commit(_row(8, 4))):
        with pytest.raises(InvalidRequest):
            call()
    with pytest.raises(InvalidRequest):
        store.batch(members)
    assert store.stats() == before
    assert batch.token_counts.tolist() == [9, 6]


def test_a_batch_that_a_reset_has_overtaken_says_so() -> None:
    store = _store()
    batch = store.batch(_running(store, 8, 5))
    store.reset(force=True)
    for call in (batch.reserve, lambda: batch.append(_row(1, 1)), lambda: batch.commit(_row(8, 4))):
        with pytest.raises(SequenceLost):
            call()


def test_a_batch_goes_on_when_others_stop() -> None:
    store = _store()
    batch = store.batch(_running(store, 8, 5))
    with store.begin(Prompt.of_tokens([9])) as other:
        other.reserve(through=1)
    batch.reserve()
    batch.append(_row(1, 1))


def test_page_tables_fill_the_rows_of_a_matrix() -> None:
    store = _store()
    members = _running(store, 8, 5, 1)
    batch = store.batch(members)
    out = np.full((3, 4), -7, np.int32)
    assert batch.page_tables(out).tolist() == [2, 2, 1]
    for row, member in enumerate(members):
        table = member.page_table.tolist()
        assert out[row].tolist() == table + [-7] * (4 - len(table))


@pytest.mark.parametrize("shape", [(2, 1), (1, 2), (3, 2), (4,), (2, 2, 1)])
def test_a_matrix_that_does_not_fit_is_refused(shape: tuple[int, ...]) -> None:
    store = _store()
    batch = store.batch(_running(store, 8, 5))
    out = np.full(shape, -7, np.int32)
    with pytest.raises(InvalidRequest, match=r"\[2, 2\]"):
        batch.page_tables(out)
    assert (out == -7).all()


def test_a_batch_of_nobody_does_nothing() -> None:
    batch: SequenceBatch = _store().batch([])
    batch.reserve()
    batch.append(np.array([], np.int32))
    assert batch.commit(np.array([], np.int64)) == {}
    assert batch.page_tables(np.zeros((0, 0), np.int32)).tolist() == []
    batch.flush()


def test_sequences_of_names_do_not_decode_in_step() -> None:
    store = _store()
    space = Namespace(model="m", format=BlockFormat.of_names(symbol_bytes=2, block_tokens=_P))
    member = store.begin(Prompt.of_names([b"aa"], token_count=4), namespace=space)
    with pytest.raises(InvalidRequest, match="names"):
        store.batch([member])


def test_sequences_of_another_store_do_not_decode_with_ours() -> None:
    ours, theirs = _store(), _store()
    with pytest.raises(InvalidRequest, match="another store"):
        ours.batch([*_running(ours, 3), *_running(theirs, 3)])


def _publish_a_block(sequence: Sequence) -> None:
    sequence.reserve(through=_P)
    assert sequence.commit(through=_P).tokens == _P


def test_a_direct_append_comes_after_what_the_batch_has_buffered() -> None:
    store = _store(16)
    sequence = store.begin(Prompt.of_tokens([0]))
    batch = store.batch([sequence])
    for token in (1, 2):
        batch.append(np.array([token]))
    sequence.append([3])
    assert sequence.token_count == 4
    batch.append(np.array([4]))
    assert batch.token_counts.tolist() == [5]
    _publish_a_block(sequence)
    assert store.peek(Prompt.of_tokens([0, 1, 2, 3])) == 4
    assert store.peek(Prompt.of_tokens([0, 3, 1, 2])) == 0


def test_another_batch_takes_over_in_order() -> None:
    store = _store(16)
    sequence = store.begin(Prompt.of_tokens([0]))
    first = store.batch([sequence])
    first.append(np.array([1]))
    second = store.batch([sequence])
    second.append(np.array([2]))
    first.append(np.array([3]))  # and back
    assert first.token_counts.tolist() == [4]
    _publish_a_block(sequence)
    assert store.peek(Prompt.of_tokens([0, 1, 2, 3])) == 4


def test_a_batch_that_is_dropped_loses_no_token() -> None:
    store = _store(16)
    sequence = store.begin(Prompt.of_tokens([0]))
    store.batch([sequence]).append(np.array([1]))
    sequence.append([2, 3])
    _publish_a_block(sequence)
    assert store.peek(Prompt.of_tokens([0, 1, 2, 3])) == 4


def test_when_a_member_ends_the_others_go_on_in_a_new_batch_with_all_their_tokens() -> None:
    store = _store(16)
    ends, stays = (store.begin(Prompt.of_tokens([start])) for start in (10, 20))
    batch = store.batch([ends, stays])
    batch.append(np.array([11, 21]))
    ends.release()
    with pytest.raises(InvalidRequest, match="ended"):
        batch.append(np.array([12, 22]))
    batch = store.batch([stays])
    batch.append(np.array([22]))
    batch.append(np.array([23]))
    assert batch.token_counts.tolist() == [4]
    _publish_a_block(stays)
    assert store.peek(Prompt.of_tokens([20, 21, 22, 23])) == 4
    stays.release()
    store.audit()
