"""One request's life: what each call promises, and that a refused one changes nothing."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable

import numpy as np
import pytest

from kvstore import (
    BlockFormat,
    InvalidRequest,
    KVStore,
    MediaSpan,
    Namespace,
    OutOfPages,
    Prompt,
    Sequence,
    SequenceLost,
)
from transfer import VirtualPagePool

_P = 4  #: tokens of a block
_DIGEST = bytes(32)


def _store(page_count: int = 16, **more: object) -> KVStore:
    return KVStore(VirtualPagePool(page_count=page_count, block_tokens=_P), **more)


def _begin(store: KVStore, tokens: int | list[int], **more: object) -> Sequence:
    return store.begin(Prompt.of_tokens(range(tokens) if isinstance(tokens, int) else tokens), **more)


def _serve(store: KVStore, tokens: int | list[int]) -> list[int]:
    with _begin(store, tokens) as sequence:
        sequence.reserve(through=sequence.token_count)
        sequence.commit(through=sequence.token_count)
        return sequence.page_table.tolist()


@pytest.mark.parametrize("tokens", range(1, 3 * _P + 2))
def test_whatever_is_found_at_least_the_last_token_is_left_to_compute(tokens: int) -> None:
    store = _store()
    _serve(store, tokens)
    with _begin(store, tokens) as again:
        assert again.matched_tokens == tokens // _P * _P
        assert again.cached_tokens == (tokens - 1) // _P * _P
        assert again.committed_tokens == again.cached_tokens == again.reserved_tokens


def test_a_whole_match_folds_its_last_block_back_and_leaves_no_duplicate() -> None:
    store = _store()
    pages = _serve(store, 2 * _P)
    with _begin(store, 2 * _P) as again:
        again.reserve(through=2 * _P)
        assert again.page_table.tolist()[0] == pages[0]
        assert again.page_table.tolist()[1] != pages[1]
        change = again.commit(through=2 * _P)
        assert (change.tokens, change.remapped) == (2 * _P, range(1, 2))
        assert again.page_table.tolist() == pages
    assert store.stats().duplicate_blocks == 1
    assert store.stats().cached_pages == 2


def test_a_prompt_as_long_as_the_pool_can_be_served_again() -> None:
    store = _store(page_count=4)
    first = _serve(store, 4 * _P)
    for _ in range(3):
        assert _serve(store, 4 * _P) == first
        store.audit()


def test_a_prompt_of_one_block_in_a_pool_of_one_can_be_served_again() -> None:
    store = _store(page_count=1)
    for _ in range(3):
        _serve(store, _P)
        store.audit()


def test_a_page_table_is_a_snapshot_that_nobody_can_write() -> None:
    store = _store()
    with _begin(store, 6) as sequence:
        empty = sequence.page_table
        sequence.reserve(through=6)
        table = sequence.page_table
        assert len(empty) == 0
        assert (table.dtype, table.shape) == (np.int32, (2,))
        with pytest.raises(ValueError, match="read-only"):
            table[0] = 7
        sequence.reserve(through=12)
        assert len(table) == 2
        assert sequence.page_table[:2].tolist() == table.tolist()
    assert len(sequence.page_table) == 0


@pytest.mark.parametrize("through", [0, 1, _P, _P + 1, np.int64(7), np.uint8(7)])
def test_a_reservation_has_room_for_what_was_asked_and_never_shrinks(through: int) -> None:
    with _begin(_store(), 6) as sequence:
        sequence.reserve(through=through)
        assert sequence.reserved_tokens == -(-int(through) // _P) * _P
        sequence.reserve(through=0)
        assert sequence.reserved_tokens == -(-int(through) // _P) * _P


@pytest.mark.parametrize("through", [-1, 1.0, 2.5, True, None, "4", [4], np.float32(4), np.int64(-1)])
def test_a_position_that_is_none_is_refused(through: object) -> None:
    store = _store()
    with _begin(store, 6) as sequence:
        before = store.stats()
        for call in (sequence.reserve, sequence.commit):
            with pytest.raises(InvalidRequest, match="position"):
                call(through=through)
        assert store.stats() == before


def test_out_of_pages_gives_the_numbers_and_changes_nothing() -> None:
    store = _store(page_count=6)
    _serve(store, 2 * _P)
    _serve(store, [9] * _P)
    held = _begin(store, [9] * (_P + 1))
    with _begin(store, [7]) as sequence:
        before = store.stats()
        with pytest.raises(OutOfPages) as refused:
            sequence.reserve(through=6 * _P)
        assert (refused.value.needed, refused.value.free, refused.value.evictable) == (6, 3, 2)
        assert "6" in str(refused.value)
        after = store.stats()
        assert after.out_of_pages == before.out_of_pages + 1
        assert (after.free_pages, after.cached_pages, after.requests) == (3, 3, before.requests)
        sequence.reserve(through=5 * _P)
    held.release()


def test_a_commit_publishes_full_blocks_at_once_and_only_those() -> None:
    store = _store()
    with _begin(store, 11) as sequence:
        sequence.reserve(through=11)
        for written, shared in ((0, 0), (3, 0), (4, 4), (7, 4), (4, 4), (11, 8), (0, 8)):
            change = sequence.commit(through=written)
            assert (change.tokens, change.remapped) == (shared, range(0))
            assert sequence.committed_tokens == shared
            assert store.peek(Prompt.of_tokens(range(11))) == shared


@pytest.mark.parametrize("through", [7, 8, 100])
def test_a_commit_never_runs_ahead_of_the_known_tokens(through: int) -> None:
    store = _store()
    with _begin(store, 6) as sequence:
        sequence.reserve(through=20)
        with pytest.raises(InvalidRequest, match="6 tokens are known"):
            sequence.commit(through=through)
        assert store.stats().cached_pages == 0


def test_a_commit_never_runs_ahead_of_the_reserved_pages() -> None:
    store = _store()
    with _begin(store, 12) as sequence:
        sequence.reserve(through=5)
        with pytest.raises(InvalidRequest, match="reserved for 8 tokens"):
            sequence.commit(through=12)
        assert store.stats().cached_pages == 0
        assert sequence.commit(through=8).tokens == 8


def test_a_commit_joins_no_further_than_it_was_told() -> None:
    store = _store()
    _serve(store, 3 * _P)
    with _begin(store, 3 * _P, skip_read=True) as sequence:
        sequence.reserve(through=3 * _P)
        for end in (1, 2, 3):
            change = sequence.commit(through=end * _P)
            assert (change.tokens, change.remapped) == (end * _P, range(end - 1, end))
            assert store.stats().evictable_pages == 3 - end
            store.audit()


def test_of_two_that_compute_the_same_the_second_folds() -> None:
    store = _store()
    first, second = _begin(store, 9), _begin(store, 9)
    for sequence in (first, second):
        sequence.reserve(through=9)
    first.commit(through=9)
    own = second.page_table
    change = second.commit(through=9)
    assert (change.tokens, change.remapped) == (8, range(2))
    assert second.page_table[:2].tolist() == first.page_table[:2].tolist()
    assert second.page_table[2] == own[2]
    assert store.stats().duplicate_blocks == 2
    assert store.stats().free_pages == 16 - 2 - 2
    first.release()
    second.release()
    store.audit()


def test_a_second_that_does_not_fold_keeps_its_own_pages_until_its_end() -> None:
    store = _store()
    first, second = _begin(store, 9), _begin(store, 9)
    for sequence in (first, second):
        sequence.reserve(through=9)
    first.commit(through=9)
    own = second.page_table.tolist()
    for end in (4, 8):
        change = second.commit(through=end, fold=False)
        assert (change.tokens, change.remapped) == (end, range(0))
    assert second.page_table.tolist() == own
    assert store.stats().reserved_pages == 1 + 3
    store.audit()
    second.release()
    assert store.stats().reserved_pages == 1
    first.release()
    assert store.stats().free_pages == 16 - 2


def test_what_is_appended_can_be_reserved_ahead_and_committed() -> None:
    store = _store()
    with _begin(store, 3) as sequence:
        sequence.reserve(through=10)  # three tokens and a draft of seven
        sequence.append([3, 4, 5])  # of which three were accepted
        sequence.append([])
        assert sequence.token_count == 6
        assert sequence.prompt_tokens == 3
        assert sequence.commit(through=6).tokens == 4
        sequence.append(np.array([6, 7], np.int64))
        assert sequence.commit(through=8).tokens == 8
    assert store.peek(Prompt.of_tokens(range(9))) == 8


@pytest.mark.parametrize("tokens", [[1.0], [True], "1", b"1", None, [-1], [2**31], [[1]], np.array([1.0]), {1}])
def test_what_is_no_token_is_not_appended(tokens: object) -> None:
    with _begin(_store(), 3) as sequence:
        with pytest.raises(InvalidRequest):
            sequence.append(tokens)
        assert sequence.token_count == 3


def test_an_appended_buffer_may_be_reused_at_once() -> None:
    store, buffer = _store(), np.array([3], np.int32)
    with _begin(store, 3) as sequence:
        for token in range(3, 8):
            buffer[0] = token
            sequence.append(buffer)
        buffer[0] = 99
        sequence.reserve(through=8)
        sequence.commit(through=8)
    assert store.peek(Prompt.of_tokens(range(8))) == 8


def test_a_chat_finds_what_its_last_turn_generated() -> None:
    store = _store()
    with _begin(store, 6) as turn:
        turn.reserve(through=14)
        turn.append([50, 51, 52, 53, 54])
        turn.commit(through=10)  # the last sampled token has no KV yet
    with _begin(store, [*range(6), 50, 51, 52, 53, 54, 7, 7]) as following:
        assert following.cached_tokens == 8


def test_park_gives_up_pages_and_pins_and_resume_finds_again_what_is_still_there() -> None:
    store = _store(page_count=4)
    sequence = _begin(store, 10)
    sequence.reserve(through=16)
    sequence.commit(through=10)
    sequence.park()
    sequence.park()
    assert (sequence.reserved_tokens, sequence.committed_tokens, sequence.cached_tokens) == (0, 0, 0)
    assert store.stats().evictable_pages == store.stats().cached_pages == 2
    assert store.stats().running == 1
    with _begin(store, [9]) as hog:
        hog.reserve(through=3 * _P)
    assert sequence.resume() == sequence.cached_tokens == 4
    assert store.stats().resumed_tokens == 4
    assert store.stats().hit_tokens == 0
    sequence.release()
    store.audit()


def test_a_parked_request_may_learn_more_tokens() -> None:
    store = _store()
    _serve(store, 12)
    sequence = _begin(store, 3)
    sequence.park()
    sequence.append(range(3, 13))
    assert sequence.resume() == 12
    sequence.release()


def test_what_a_resumed_request_finds_is_no_hit() -> None:
    store = _store()
    sequence = _begin(store, 5)
    sequence.append(range(5, 13))
    _serve(store, 13)
    before = store.stats()
    sequence.park()
    assert sequence.resume() == 12
    sequence.reserve(through=13)
    sequence.release()
    after = store.stats()
    assert after.hit_tokens == before.hit_tokens
    assert after.queried_tokens == before.queried_tokens + 5
    assert after.resumed_tokens == 12


def test_a_request_that_was_parked_before_it_reserved_counts_what_it_had_found() -> None:
    store = _store()
    _serve(store, 9)
    sequence = _begin(store, 9)
    sequence.park()
    sequence.release()
    assert store.stats().hit_tokens == 8


@pytest.mark.parametrize("park", [False, True])
def test_an_image_in_the_prompts_started_block_counts_when_more_tokens_fill_it(park: bool) -> None:
    store = _store()
    text = [1, 2, 3, 4, 7, 7, 8, 9, 5]
    _serve(store, text)
    prompt = Prompt.of_tokens(text[:6], media=[MediaSpan(start=4, token_count=2, digest=_DIGEST)])
    with store.begin(prompt) as sequence:
        sequence.reserve(through=6)
        sequence.append(text[6:])
        if park:
            sequence.park()
            assert sequence.resume() == 4, "the text's KV is not the image's"
        sequence.reserve(through=9)
        assert sequence.commit(through=9).remapped == range(0)
        pages = sequence.page_table.tolist()
    assert store.stats().cached_pages == 3
    shown = Prompt.of_tokens(text, media=[MediaSpan(start=4, token_count=2, digest=_DIGEST)])
    with store.begin(shown) as again:
        assert again.page_table.tolist() == pages[:2]


def _never(sequence: Sequence) -> list[Callable[[], object]]:
    return [
        lambda: sequence.reserve(through=1),
        lambda: sequence.commit(through=0),
        sequence.resume,
    ]


@pytest.mark.parametrize("ends", ["release", "abandon"])
def test_an_ended_request_refuses_everything_but_another_end(ends: str) -> None:
    store = _store()
    sequence = _begin(store, 9)
    sequence.reserve(through=9)
    getattr(sequence, ends)()
    before = store.stats()
    for call in [*_never(sequence), sequence.park, lambda: sequence.append([1])]:
        with pytest.raises(InvalidRequest, match="ended"):
            call()
    sequence.release()
    sequence.abandon()
    assert store.stats() == before
    assert "ended" in repr(sequence)


def test_a_parked_request_neither_reserves_nor_commits() -> None:
    sequence = _begin(_store(), 9)
    with pytest.raises(InvalidRequest, match="running"):
        sequence.resume()
    sequence.park()
    for call in _never(sequence)[:2]:
        with pytest.raises(InvalidRequest, match="parked"):
            call()
    sequence.release()


def test_release_counts_a_request_and_a_use_and_abandon_neither() -> None:
    store = _store()
    _serve(store, 9)
    before = store.stats()
    _begin(store, 9).abandon()
    assert store.stats() == before
    _begin(store, 9).release()
    after = store.stats()
    assert (after.requests, after.hit_tokens) == (before.requests + 1, before.hit_tokens + 8)


def test_a_request_counts_once_however_often_it_reserves() -> None:
    store = _store()
    with _begin(store, 9) as sequence:
        for through in (2, 9, 30):
            sequence.reserve(through=through)
    assert (store.stats().requests, store.stats().queried_tokens) == (1, 9)


def test_blocks_that_an_abandoned_request_published_stay() -> None:
    store = _store()
    sequence = _begin(store, 9)
    sequence.reserve(through=9)
    sequence.commit(through=4)
    sequence.abandon()
    assert store.peek(Prompt.of_tokens(range(9))) == 4
    assert store.stats().free_pages == 15


def test_a_context_releases_and_abandons_when_something_goes_wrong() -> None:
    store = _store()
    with _begin(store, 9) as sequence:
        pass
    assert store.stats().requests == 1
    with contextlib.suppress(KeyError), _begin(store, 9) as sequence:
        sequence.reserve(through=9)
        sequence.commit(through=9)
        raise KeyError
    assert store.stats().requests == 2  # a reservation had succeeded
    assert (store.stats().running, store.stats().reserved_pages) == (0, 0)


def test_a_request_that_is_dropped_gives_its_pages_back_before_the_next_is_refused() -> None:
    store = _store(page_count=4)
    sequence = _begin(store, [9])
    dropped = _begin(store, 9)
    dropped.reserve(through=12)
    del dropped
    sequence.reserve(through=16)
    sequence.release()
    assert store.stats().ended_unreleased == 1


def test_a_request_that_is_dropped_in_a_cycle_is_found_when_the_collector_runs() -> None:
    store = _store()
    sequence = _begin(store, 9)
    sequence.reserve(through=9)
    cycle: list[object] = [sequence]
    cycle.append(cycle)
    del cycle, sequence
    gc.collect()
    assert (store.stats().running, store.stats().free_pages, store.stats().ended_unreleased) == (0, 16, 1)
    store.audit()


def test_a_store_that_is_dropped_with_its_requests_takes_them_along() -> None:
    store = _store()
    sequence = _begin(store, 9)
    sequence.reserve(through=9)
    del store
    gc.collect()
    sequence.commit(through=9)
    sequence.release()


def test_a_lost_request_may_only_end_and_keeps_its_pages_until_then() -> None:
    store = _store()
    _serve(store, 4)
    running, parked = _begin(store, 9), _begin(store, 9)
    running.reserve(through=9)
    parked.park()
    pages = running.page_table.tolist()
    store.reset(force=True)
    assert running.is_lost
    assert parked.is_lost
    for sequence in (running, parked):
        for call in [*_never(sequence), sequence.park]:
            with pytest.raises(SequenceLost):
                call()
    assert running.page_table.tolist() == pages
    assert store.stats().free_pages == 16 - 3
    assert set(_serve(store, 9)).isdisjoint(pages)
    running.release()
    parked.abandon()
    assert store.stats().free_pages + store.stats().cached_pages == 16
    store.audit()


def test_lost_requests_that_share_pages_free_them_with_the_last() -> None:
    store = _store()
    _serve(store, 8)
    left, right = _begin(store, 9), _begin(store, 5)
    store.reset(force=True)
    assert store.stats().free_pages == 16 - 2
    left.release()
    assert store.stats().free_pages == 16 - 1
    store.audit()
    right.release()
    assert store.stats().free_pages == 16


def test_skip_read_finds_nothing_and_still_publishes() -> None:
    store = _store()
    _serve(store, 8)
    with _begin(store, 12, skip_read=True) as sequence:
        assert (sequence.matched_tokens, sequence.cached_tokens) == (0, 0)
        sequence.reserve(through=12)
        assert sequence.commit(through=12).remapped == range(2)
    assert store.stats().cached_pages == 3
    assert store.stats().queried_tokens == 8


def test_skip_write_finds_and_publishes_nothing() -> None:
    store = _store()
    _serve(store, 4)
    with _begin(store, 12, skip_write=True) as sequence:
        assert sequence.cached_tokens == 4
        sequence.reserve(through=12)
        change = sequence.commit(through=12)
        assert (change.tokens, change.remapped) == (4, range(0))
    assert store.stats().cached_pages == 1


_NAMES = Namespace(model="m", format=BlockFormat.of_names(symbol_bytes=2, block_tokens=_P))


def _named(store: KVStore, names: list[bytes], token_count: int) -> Sequence:
    return store.begin(Prompt.of_names(names, token_count=token_count), namespace=_NAMES)


def test_more_blocks_become_known_by_name() -> None:
    store = _store()
    with _named(store, [b"aa"], 5) as sequence:
        sequence.append_names([b"bb"], token_count=9)
        sequence.append_names([], token_count=11)
        sequence.append_names(np.array([0x6363], np.uint16), token_count=12)
        sequence.reserve(through=12)
        assert sequence.commit(through=12).tokens == 12
    with _named(store, [b"aa", b"bb", b"cc"], 13) as again:
        assert again.cached_tokens == 12


@pytest.mark.parametrize(
    ("names", "token_count"),
    [
        ([b"bb"], 7),
        ([], 8),
        ([b"bb", b"cc"], 8),
        ([b"bbb"], 8),
        ([b"b"], 8),
        ([b"bbbb"], 12),
        ([b"bb"], 4),
        ([], 4),
        (["bb"], 8),
        (None, 8),
        ([b"bb"], 8.0),
        ([b"bb"], "8"),
        ([b"bb"], None),
    ],
)
def test_names_that_do_not_continue_the_request_are_refused(names: object, token_count: object) -> None:
    with _named(_store(), [b"aa"], 5) as sequence:
        with pytest.raises(InvalidRequest):
            sequence.append_names(names, token_count=token_count)
        assert sequence.token_count == 5
        sequence.append_names([b"bb"], token_count=8)
        assert sequence.token_count == 8


def test_a_request_is_continued_in_its_own_kind() -> None:
    store = _store()
    with _named(store, [b"aa"], 4) as named, _begin(store, 4) as spelled:
        with pytest.raises(InvalidRequest, match="append_names"):
            named.append([1])
        with pytest.raises(InvalidRequest, match="use append"):
            spelled.append_names([b"bb"], token_count=8)


def test_a_request_shows_what_it_holds_and_nothing_of_what_it_says() -> None:
    with _begin(_store(), [77, 78, 79], request_id="chat-1") as sequence:
        sequence.reserve(through=3)
        assert repr(sequence) == "Sequence('chat-1', running, 3 tokens, 0 of 1 pages shared)"
