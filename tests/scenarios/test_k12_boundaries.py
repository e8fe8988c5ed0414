"""K12: page boundaries and sizes at the edge."""

from __future__ import annotations

import numpy as np
import pytest

from eviction import make_policy, policy_names
from kvstore import BlockFate, BlockFormat, ConfigError, InvalidRequest, KVStore, Namespace, Prompt
from tests.support.engine import Engine, Walk
from transfer import ElementType, Layout, LayoutError, NumpyPagePool, VirtualPagePool

P = 4


@pytest.mark.parametrize("tokens", range(1, 3 * P + 1))
def test_b099_at_least_one_token_is_left_to_compute(tokens: int) -> None:
    """B099: every length up to 3P, repeated: hit <= n - 1 in whole pages, nothing doubled, the chain unbroken."""
    engine = Engine(page_count=16)
    prompt = list(range(tokens))
    assert engine.serve(prompt) == 0
    for _ in range(3):
        with engine.begin(prompt) as request:
            assert request.sequence.cached_tokens == (tokens - 1) // P * P
            assert request.sequence.matched_tokens == tokens // P * P
            request.prefill()
            assert request.sequence.committed_tokens == tokens // P * P
            engine.check()
        assert engine.store.stats().cached_pages == tokens // P
        engine.check_quiet()
    assert engine.serve([*prompt, *range(100, 108)]) == tokens // P * P
    assert engine.serve([*prompt, *range(100, 109)]) == (tokens + 8) // P * P


def test_b099_an_empty_prompt_is_refused() -> None:
    """B099: length 0: there is nothing to compute, so there is no request."""
    for nothing in ([], (), np.array([], np.int32)):
        with pytest.raises(InvalidRequest, match="at least one token"):
            Prompt.of_tokens(nothing)
    with pytest.raises(InvalidRequest, match="at least one token"):
        Prompt.of_names([], token_count=0)


@pytest.mark.parametrize("tokens", range(1, 3 * P + 1))
@pytest.mark.parametrize("chunk", range(1, P + 2))
def test_b099_full_hit_then_decode_in_any_chunk(tokens: int, chunk: int) -> None:
    """B099: a fully cached prompt goes on across the next boundary, computed in chunks of any size."""
    engine = Engine(page_count=16)
    prompt = list(range(tokens))
    engine.serve(prompt)
    with engine.begin(prompt) as request:
        request.prefill(chunk=chunk)
        request.decode(range(50, 55))
        engine.check()
    assert engine.cached([*prompt, *range(50, 55)]) == (tokens + 4) // P * P
    engine.check_quiet()


@pytest.mark.parametrize("through", [0, 1, P - 1, P, P + 1, 2 * P - 1, 2 * P])
def test_b101_lengths_of_the_last_page(through: int) -> None:
    """B101: n = 0, 1, P-1, P, P+1: pages are rounded up where they are reserved, down where they are shared."""
    engine = Engine(page_count=16)
    prompt = list(range(2 * P + 1))
    with engine.begin(prompt) as request:
        request.reserve(through=through)
        assert len(request.pages) == -(-through // P)
        assert request.sequence.reserved_tokens == len(request.pages) * P
        request.write(through=through)
        assert request.commit().tokens == through // P * P
        assert engine.store.stats().reserved_pages == len(request.pages) - through // P
        engine.check()
    assert engine.cached(prompt) == through // P * P
    assert len(engine.store.block_names(Prompt.of_tokens(range(through + 1)))) == (through + 1) // P
    engine.check_quiet()


def test_b102_a_namespace_whose_blocks_do_not_fit_the_pages_is_refused() -> None:
    """B102: at the start, with both numbers."""
    engine = Engine(page_count=16)
    other = Namespace(model="m", format=BlockFormat.of_tokens(8))
    with pytest.raises(ConfigError, match="blocks of 8 tokens do not fit pages of 4"):
        Engine(page_count=16, namespace=other)
    with pytest.raises(ConfigError, match="blocks of 8 tokens do not fit pages of 4"):
        engine.store.begin(Prompt.of_tokens([1]), namespace=other)
    assert engine.store.stats().namespaces == 0
    engine.check_quiet()


@pytest.mark.parametrize("hit", range(1, 9))
@pytest.mark.parametrize("cut", range(1, 9))
def test_b102_hits_that_end_inside_a_run_round_down_to_whole_pages(hit: int, cut: int) -> None:
    """B102: one tier: runs of 1..8 pages, matches that end 1 token before and after any of their pages."""
    engine = Engine(page_count=40)
    prompt = list(range(33))
    engine.serve(prompt)
    engine.begin([*prompt[: cut * P], 99]).abandon()  # cuts the run
    for tokens in (hit * P - 1, hit * P, hit * P + 1):
        with engine.begin([*prompt[:tokens], 77]) as request:
            assert request.sequence.cached_tokens == tokens // P * P
            request.prefill()
            engine.check()
    engine.check_quiet()


@pytest.mark.parametrize("block_tokens", [1, 2, 3, 5, 8, 16, 32, 64, 128, 256])
@pytest.mark.parametrize("policy", policy_names())
def test_b103_every_page_size_works(block_tokens: int, policy: str) -> None:
    """B103: a small suite for page sizes that engines offer, and some that none does."""
    engine = Engine(page_count=12, block_tokens=block_tokens, policy=make_policy(policy))
    prompt = list(range(3 * block_tokens + 1))
    assert engine.serve(prompt) == 0
    assert engine.serve(prompt) == 3 * block_tokens
    assert engine.serve([*prompt[:block_tokens], 999, 7, 7]) == block_tokens
    engine.check_quiet()
    walk = Walk(engine, seed=103, length_max=4 * block_tokens)
    for _ in range(30):
        walk.step()
    engine.check()
    walk.quiet()
    engine.check_quiet()


@pytest.mark.parametrize("element", ElementType)
@pytest.mark.parametrize(("layers", "kv_heads", "head_dim"), [(1, 1, 1), (3, 1, 2), (2, 8, 4)])
def test_b103_every_element_type_and_shape_works(
    element: ElementType, layers: int, kv_heads: int, head_dim: int
) -> None:
    """B103: bytes are right in every layout."""
    layout = Layout(layers=layers, kv_heads=kv_heads, head_dim=head_dim, block_tokens=4, element=element)
    engine = Engine(page_count=8, layout=layout)
    assert engine.pool.pages[0].nbytes == layout.page_bytes
    prompt = list(range(13))
    for expected in (0, 12):
        assert engine.serve(prompt, chunk=3) == expected
    engine.evict(2)
    assert engine.serve(prompt) == 4
    engine.check_quiet()


@pytest.mark.parametrize("block_tokens", [0, -1, 2**16 + 1])
def test_b103_what_is_not_advertised_is_refused_at_the_start(block_tokens: int) -> None:
    """B103: page sizes outside the range are named, not met later."""
    with pytest.raises(ConfigError, match="block_tokens must lie in"):
        BlockFormat.of_tokens(block_tokens)
    if block_tokens < 1:
        with pytest.raises(LayoutError):
            Layout(layers=1, kv_heads=1, head_dim=1, block_tokens=block_tokens)
        with pytest.raises(LayoutError):
            VirtualPagePool(page_count=1, block_tokens=block_tokens)
    for page_count in (0, -1):
        with pytest.raises(LayoutError):
            NumpyPagePool(Layout(layers=1, kv_heads=1, head_dim=1, block_tokens=1), page_count=page_count)


def test_b104_a_prefix_shorter_than_a_block_is_called_that() -> None:
    """B104: 100 prompts share 3 tokens with P=4: explain says so, and tells it from no shared prefix."""
    engine = Engine(page_count=16)
    engine.serve([1, 2, 3, 4, 5, 6, 7, 8])
    for at in range(100):
        near = engine.store.explain(Prompt.of_tokens([1, 2, 3, 100 + at, 5]))
        assert near.shared_tail_tokens == 3
        assert "shared 3 tokens" in str(near)
        assert "a block has 4" in str(near)
        far = engine.store.explain(Prompt.of_tokens([100 + at, 2, 3, 4, 5]))
        assert far.shared_tail_tokens == 0
        assert "shared" not in str(far)
    inside = engine.store.explain(Prompt.of_tokens([1, 2, 3, 4, 5, 6, 9, 9, 9]))
    assert [(span.start_block, span.end_block, span.fate) for span in inside.spans] == [
        (0, 1, BlockFate.HIT),
        (1, 2, BlockFate.UNSEEN),
        (2, 3, BlockFate.PARTIAL),
    ]
    assert inside.shared_tail_tokens == 2
    engine.check_quiet()


@pytest.mark.parametrize("shared", range(2 * P + 2))
def test_b104_the_tail_that_is_shared_is_counted_to_the_token(shared: int) -> None:
    """B104: whatever the length that two prompts share, hits and near misses make it up."""
    engine = Engine(page_count=16)
    prompt = list(range(1, 10))
    engine.serve(prompt)
    why = engine.store.explain(Prompt.of_tokens([*prompt[:shared], 50, 50, 50]))
    hit = sum(span.end_block - span.start_block for span in why.spans if span.fate is BlockFate.HIT)
    assert hit == shared // P
    # The ninth token was never in a full block, so nothing of it is remembered.
    assert why.shared_tail_tokens == (shared % P if shared < 2 * P else 0)


def test_b104_a_block_that_went_is_not_called_unseen() -> None:
    """B104: the other reasons for a miss: evicted for whom, also when a tail went block by block; other namespace."""
    engine = Engine(page_count=8)
    prompt = list(range(1, 33))
    engine.serve(prompt)
    engine.evict(1, request_id="first")
    second = engine.grab(2, request_id="second")
    third = engine.grab(1, request_id="third")
    spans = engine.store.explain(Prompt.of_tokens(prompt)).spans
    assert [(span.start_block, span.end_block, span.fate) for span in spans] == [
        (0, 5, BlockFate.HIT),
        (5, 8, BlockFate.EVICTED),
    ]
    gone = spans[1].eviction
    assert gone is not None
    assert gone.by == "third"
    elsewhere = Namespace(model="other", format=BlockFormat.of_tokens(4))
    (span,) = engine.store.explain(Prompt.of_tokens(prompt[:20]), namespace=elsewhere).spans
    assert (span.fate, span.differing_fields) == (BlockFate.OTHER_NAMESPACE, ("model",))
    second.abandon()
    third.abandon()
    engine.check_quiet()


@pytest.mark.parametrize("cut", [1, 3, 5])
def test_b104_what_went_is_known_however_its_run_was_cut(cut: int) -> None:
    """B104: a run is cut, then its lower half goes, or all of it; explain finds it under the prefix alone."""
    engine = Engine(page_count=12)
    prompt = list(range(1, 4 * 6 + 1))
    engine.serve(prompt)
    branch = [*prompt[: cut * P], *range(50, 50 + P)]
    engine.serve(branch)
    engine.evict(6 - cut)
    assert engine.cached(prompt) == cut * P

    def fates() -> list[tuple[int, int, BlockFate]]:
        spans = engine.store.explain(Prompt.of_tokens(prompt)).spans
        return [(span.start_block, span.end_block, span.fate) for span in spans]

    assert fates() == [(0, cut, BlockFate.HIT), (cut, 6, BlockFate.EVICTED)]
    engine.evict(cut + 1)
    assert {fate for _, _, fate in fates()} == {BlockFate.EVICTED}
    engine.check_quiet()


def test_b104_names_work_at_every_edge() -> None:
    """B104, B101: prompts known by names: none for the last tokens, one for them, and what is refused."""
    space = Namespace(model="m", format=BlockFormat.of_names(symbol_bytes=8, block_tokens=4))
    store = KVStore(VirtualPagePool(page_count=8, block_tokens=4), namespace=space)
    names = np.arange(3, dtype=np.int64)
    for tokens, given in ((3, 0), (3, 1), (4, 1), (7, 1), (7, 2), (8, 2), (11, 3)):
        with store.begin(Prompt.of_names(names[:given], token_count=tokens)) as sequence:
            sequence.reserve(through=tokens)
            assert sequence.commit(through=tokens).tokens == tokens // 4 * 4
        assert store.peek(Prompt.of_names(names[:given], token_count=tokens)) == tokens // 4 * 4
    for tokens, given in ((3, 2), (4, 0), (8, 1), (4, 3)):
        with pytest.raises(InvalidRequest):
            store.begin(Prompt.of_names(names[:given], token_count=tokens))
    store.audit()
