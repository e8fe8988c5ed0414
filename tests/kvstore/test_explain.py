"""Why did this prompt hit, or not? Each answer is true, and says what to look at."""

from __future__ import annotations

import pytest

from kvstore import (
    BlockFate,
    BlockFormat,
    EvictionReason,
    Explanation,
    InvalidRequest,
    KVStore,
    MediaSpan,
    Namespace,
    Prompt,
)
from transfer import VirtualPagePool

_P = 4
_FORMAT = BlockFormat.of_tokens(_P)
_HIT, _GONE, _OTHER, _UNSEEN, _PARTIAL = (
    BlockFate.HIT,
    BlockFate.EVICTED,
    BlockFate.OTHER_NAMESPACE,
    BlockFate.UNSEEN,
    BlockFate.PARTIAL,
)


def _store(page_count: int = 64, **more: object) -> KVStore:
    return KVStore(
        VirtualPagePool(page_count=page_count, block_tokens=_P), namespace=Namespace(model="m", format=_FORMAT), **more
    )


def _serve(store: KVStore, tokens: list[int] | range, **more: object) -> None:
    with store.begin(Prompt.of_tokens(tokens), **more) as sequence:
        sequence.reserve(through=len(tokens))
        sequence.commit(through=len(tokens))


def _evict(store: KVStore, pages: int, by: str = "hog") -> None:
    """Take this many pages more than are free, and give them back."""
    with store.begin(Prompt.of_tokens([999]), request_id=by) as hog:
        hog.reserve(through=_P * (store.stats().free_pages + pages))


def _fates(explanation: Explanation) -> list[tuple[int, int, BlockFate]]:
    return [(span.start_block, span.end_block, span.fate) for span in explanation.spans]


def _of(store: KVStore, tokens: list[int] | range, **more: object) -> list[tuple[int, int, BlockFate]]:
    return _fates(store.explain(Prompt.of_tokens(tokens), **more))


def test_an_empty_store_has_seen_nothing() -> None:
    assert _of(_store(), range(9)) == [(0, 2, _UNSEEN), (2, 3, _PARTIAL)]
    assert _of(_store(), range(8)) == [(0, 2, _UNSEEN)]
    assert _of(_store(), range(3)) == [(0, 1, _PARTIAL)]


def test_what_is_resident_hits_and_the_rest_was_never_seen() -> None:
    store = _store()
    _serve(store, range(9))
    assert _of(store, range(8)) == [(0, 2, _HIT)]
    assert _of(store, range(15)) == [(0, 2, _HIT), (2, 3, _UNSEEN), (3, 4, _PARTIAL)]
    assert _of(store, range(1, 9)) == [(0, 2, _UNSEEN)]


def test_an_eviction_is_told_with_its_reason_its_time_and_who_needed_the_room() -> None:
    now = iter(range(1000, 2000))
    store = _store(page_count=4, now_ns=lambda: next(now))
    _serve(store, range(12))
    _evict(store, 3, by="chat-7")
    explanation = store.explain(Prompt.of_tokens(range(14)))
    assert _fates(explanation) == [(0, 3, _GONE), (3, 4, _PARTIAL)]
    gone = explanation.spans[0].eviction
    assert gone is not None
    assert (gone.first_block, gone.reason, gone.by) == (0, EvictionReason.CAPACITY, "chat-7")
    assert 1000 < gone.now_ns < 1010
    assert str(explanation).splitlines()[0] == (
        f"blocks [0, 3): evicted (capacity, at {gone.now_ns} ns, for request 'chat-7')"
    )


@pytest.mark.parametrize("pieces", [[1, 1, 1, 1], [2, 2], [3, 1], [1, 3], [4]])
def test_a_run_that_went_piece_by_piece_is_known_as_a_whole(pieces: list[int]) -> None:
    store = _store(page_count=5)
    _serve(store, range(16))
    left = 4
    for piece in pieces:
        _evict(store, piece)
        left -= piece
        expected = [(0, left, _HIT)] if left else []
        assert _of(store, range(16)) == [*expected, (left, 4, _GONE)]


def test_who_leaves_an_evicted_run_is_told_no_more_than_is_true() -> None:
    store = _store(page_count=5)
    _serve(store, range(16))
    _evict(store, 2)
    assert _of(store, [*range(12), 7, 7, 7, 7]) == [(0, 2, _HIT), (2, 3, _GONE), (3, 4, _UNSEEN)]
    _evict(store, 2)
    assert _of(store, [*range(8), 7, 7, 7, 7]) == [(0, 2, _GONE), (2, 3, _UNSEEN)]
    assert _of(store, [7, *range(1, 16)]) == [(0, 4, _UNSEEN)]


def test_an_eviction_is_found_however_its_run_was_split_and_joined() -> None:
    store = _store(page_count=8)
    _serve(store, range(24))
    _serve(store, [*range(8), 7, 7, 7, 7])
    _serve(store, range(24))  # hotter than the branch
    _evict(store, 1)
    assert _of(store, [*range(8), 7, 7, 7, 7]) == [(0, 2, _HIT), (2, 3, _GONE)]
    assert store.stats().nodes == 1, "the branch went, so the halves are one run again"
    _evict(store, 6)
    assert _of(store, range(24)) == [(0, 6, _GONE)]
    assert _of(store, [*range(4), 8, 8, 8, 8]) == [(0, 1, _GONE), (1, 2, _UNSEEN)], "also before the joint"


def test_what_a_chat_grew_turn_by_turn_is_found_when_it_goes() -> None:
    store = _store(page_count=9)
    for turn in range(1, 9):
        _serve(store, range(turn * _P))
    _evict(store, 8)
    assert _of(store, range(32)) == [(0, 8, _GONE)]


def test_what_came_back_hits() -> None:
    store = _store(page_count=5)
    _serve(store, range(16))
    _evict(store, 4)
    _serve(store, range(8))
    assert _of(store, range(16)) == [(0, 2, _HIT), (2, 4, _GONE)]


def test_trimming_and_a_reset_are_told_apart_from_pressure() -> None:
    store = _store(retained_page_count_max=1)
    _serve(store, range(8), request_id="me")
    (_, span) = store.explain(Prompt.of_tokens(range(8))).spans
    assert span.eviction is not None
    assert (span.eviction.reason, span.eviction.by) == (EvictionReason.RETENTION, "me")
    store.reset()
    gone = store.explain(Prompt.of_tokens(range(4))).spans[0].eviction
    assert gone is not None
    assert gone.reason is EvictionReason.RESET


def test_another_namespace_that_has_it_is_named_by_its_differing_fields() -> None:
    store = _store()
    other = Namespace(model="m", format=_FORMAT, adapter="a", salt="secret")
    _serve(store, range(12), namespace=other)
    explanation = store.explain(Prompt.of_tokens(range(16)))
    assert _fates(explanation) == [(0, 3, _OTHER), (3, 4, _UNSEEN)]
    assert explanation.spans[0].differing_fields == ("adapter", "salt")
    assert "differs in adapter, salt" in str(explanation)
    assert "secret" not in str(explanation)


def test_the_namespace_that_has_most_of_it_is_named() -> None:
    store = _store()
    _serve(store, range(4), namespace=Namespace(model="m", format=_FORMAT, revision="1"))
    _serve(store, range(12), namespace=Namespace(model="m", format=_FORMAT, adapter="a"))
    _serve(store, range(4))
    explanation = store.explain(Prompt.of_tokens(range(16)))
    assert _fates(explanation) == [(0, 1, _HIT), (1, 3, _OTHER), (3, 4, _UNSEEN)]
    assert explanation.spans[1].differing_fields == ("adapter",)


@pytest.mark.parametrize(("shared", "blocks"), [(1, 0), (3, 0), (4, 1), (5, 1), (7, 1), (10, 2)])
def test_tokens_shared_beyond_the_last_whole_block_are_counted(shared: int, blocks: int) -> None:
    store = _store()
    _serve(store, range(12))
    tokens = [*range(shared), *[99] * 8]
    explanation = store.explain(Prompt.of_tokens(tokens))
    assert explanation.shared_tail_tokens == shared - 4 * blocks
    told = f"shared {shared - 4 * blocks} tokens more with a cached prompt; a block has 4"
    assert (told in str(explanation)) == (shared % 4 != 0)


def test_a_prompt_shorter_than_a_block_may_share_all_of_it() -> None:
    store = _store()
    _serve(store, range(4))
    assert store.explain(Prompt.of_tokens(range(3))).shared_tail_tokens == 3
    assert store.explain(Prompt.of_tokens(range(4))).shared_tail_tokens == 0


def test_the_best_of_several_continuations_counts() -> None:
    store = _store()
    _serve(store, range(4))
    for tail in ([50, 1, 2, 3], [50, 51, 2, 3], [60, 51, 52, 3]):
        _serve(store, [*range(4), *tail])
    assert store.explain(Prompt.of_tokens([*range(4), 50, 51, 9, 9])).shared_tail_tokens == 2


def test_text_shares_no_tail_with_an_image() -> None:
    store = _store()
    image = MediaSpan(start=0, token_count=4, digest=bytes(32))
    with store.begin(Prompt.of_tokens([7] * 4, media=[image])) as sequence:
        sequence.reserve(through=4)
        sequence.commit(through=4)
    explanation = store.explain(Prompt.of_tokens([7] * 4))
    assert _fates(explanation) == [(0, 1, _UNSEEN)]
    assert explanation.shared_tail_tokens == 0


def test_names_are_explained_without_a_tail() -> None:
    store = _store(page_count=3)
    space = Namespace(model="m", format=BlockFormat.of_names(symbol_bytes=8, block_tokens=_P))
    prompt = Prompt.of_names([b"first---", b"second--"], token_count=9)
    with store.begin(prompt, namespace=space) as sequence:
        sequence.reserve(through=9)
        sequence.commit(through=9)
    _evict(store, 1)
    explanation = store.explain(prompt, namespace=space)
    assert _fates(explanation) == [(0, 1, _HIT), (1, 2, _GONE), (2, 3, _PARTIAL)]
    assert explanation.shared_tail_tokens == 0


def test_a_question_changes_nothing() -> None:
    store = _store()
    _serve(store, range(12))
    before = store.stats()
    store.explain(Prompt.of_tokens(range(6)))
    store.explain(Prompt.of_tokens(range(6)), namespace=Namespace(model="n", format=_FORMAT))
    assert store.stats() == before


def test_the_memory_of_evictions_is_bounded_and_its_loss_is_no_lie() -> None:
    store = _store(page_count=2)
    for number in range(5000):
        _serve(store, [number] * 4)
    assert _of(store, [4990] * 4) == [(0, 1, _GONE)]
    assert _of(store, [1] * 4) == [(0, 1, _UNSEEN)]


@pytest.mark.parametrize("prompt", [[1, 2, 3], None, "text"])
def test_only_a_prompt_is_explained(prompt: object) -> None:
    with pytest.raises(InvalidRequest):
        _store().explain(prompt)


def test_a_tail_that_went_is_not_told_of_another_branch() -> None:
    store = _store(page_count=8)
    one, two, three, four, five = ([number] * 4 for number in range(1, 6))
    _serve(store, [*one, *two, *three, *four])
    _evict(store, 2)
    for _ in range(2):
        _serve(store, [*one, *five])
    _evict(store, 1)
    assert store.peek(Prompt.of_tokens([*one, *two])) == 4
    assert _of(store, [*one, *five, *three, *four]) == [(0, 2, _HIT), (2, 4, _UNSEEN)]
    assert _of(store, [*one, *two, *three, *four]) == [(0, 1, _HIT), (1, 4, _GONE)]
