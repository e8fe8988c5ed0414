"""K06: KV can be matched before it is valid."""

from __future__ import annotations

import pytest

from kvstore import InvalidRequest
from tests.support.engine import Engine

A = list(range(1, 9))


@pytest.mark.parametrize("prompt_tokens", range(1, 10))
@pytest.mark.parametrize("sampled_tokens", range(10))
def test_b047_a_page_counts_as_full_once_its_last_slot_is_written(prompt_tokens: int, sampled_tokens: int) -> None:
    """B047: prompt 1..9 x generated 0..9: the last sampled token has no KV, so a page that ends with it isn't full."""
    engine = Engine(page_count=16)
    tokens = list(range(prompt_tokens + sampled_tokens))
    assert engine.serve(tokens[:prompt_tokens], sampled=tokens[prompt_tokens:]) == 0
    written = prompt_tokens + max(0, sampled_tokens - 1)
    assert engine.cached([*tokens, 99, 98, 97, 96]) == written // 4 * 4
    engine.evict(engine.store.stats().evictable_pages)
    assert engine.serve(tokens[:prompt_tokens], sampled=tokens[prompt_tokens:]) == 0
    with engine.begin([*tokens, 99]) as again:  # checks every slot that it finds
        assert again.sequence.cached_tokens == written // 4 * 4
    engine.check_quiet()


def test_b047_what_is_reserved_and_known_is_not_yet_written() -> None:
    """B047: nothing but a commit publishes: not a reservation, not a known token, not an end."""
    engine = Engine(page_count=8)
    for end in ("release", "abandon", "park"):
        request = engine.begin(A)
        request.reserve(through=16)
        request.append([9, 10, 11, 12])
        assert engine.cached([*A, 9, 10, 11, 12]) == 0
        getattr(request, end)()
        assert engine.cached([*A, 9, 10, 11, 12]) == 0
        request.release()
    engine.check_quiet()


def test_b047_a_commit_past_what_can_have_been_written_is_refused() -> None:
    """B047: past the known tokens, or past the reserved pages: refused before any change."""
    engine = Engine(page_count=8)
    with engine.begin(A) as request:
        request.reserve(through=16)
        with pytest.raises(InvalidRequest, match="8 tokens are known"):
            request.sequence.commit(through=9)
        request.append(range(9, 30))
        with pytest.raises(InvalidRequest, match="pages are reserved for 16 tokens"):
            request.sequence.commit(through=20)
        assert request.sequence.committed_tokens == 0
        assert engine.store.stats().cached_pages == 0
        engine.check()


def test_b048_another_request_sees_exactly_what_is_committed_during_and_after() -> None:
    """B048: one tier: 8 pages are computed and the fifth fails; others see 0, then exactly the first 4."""
    engine = Engine(page_count=16)
    prompt = list(range(33))
    with pytest.raises(RuntimeError), engine.begin(prompt) as request:  # noqa: PT012 - the failure comes half-way
        request.reserve()
        request.write(through=16)
        assert engine.cached(prompt) == 0
        request.commit()
        assert engine.cached(prompt) == 16
        during = engine.begin(prompt)
        raise RuntimeError
    assert engine.cached(prompt) == during.sequence.cached_tokens == 16
    assert engine.store.stats().free_pages == 12
    during.prefill()
    during.release()
    assert engine.cached(prompt) == 32
    engine.check_quiet()


def test_b049_a_failed_step_publishes_nothing() -> None:
    """B049: one tier has no transfer that could fail; a forward pass can, before and between its commits."""
    engine = Engine(page_count=8)
    for written in (0, 4, 6):
        with pytest.raises(RuntimeError), engine.begin(A) as request:  # noqa: PT012
            request.reserve()
            request.write(through=written)
            raise RuntimeError
        assert engine.cached(A) == 0
        assert engine.store.stats().published_blocks == 0
    engine.check_quiet()


def test_b051_the_same_prompt_comes_again_while_it_is_being_written() -> None:
    """B051: one tier: a page is found when it is complete, never before, whoever asks in whichever way."""
    engine = Engine(page_count=16)
    writer = engine.begin(A)
    writer.reserve()
    for written in range(9):
        writer.write(through=written)
        complete = written // 4 * 4
        writer.commit()
        assert engine.cached([*A, 9]) == complete
        with engine.begin([*A, 9]) as reader:
            assert reader.sequence.cached_tokens == complete
    writer.release()
    engine.check_quiet()
