"""What is chosen of a block, and how many blocks there are."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data.errors import DaymillError
from training.parallel.blockwise import LANES, MAX_BLOCK, Blocks, block_for, chosen, cut
from training.parallel.wire import ring_bytes


@given(st.integers(1, 200_000), st.integers(2, 64), st.floats(0.5, 0.8))
def test_blocks_cover_a_bucket_and_save_what_is_asked(numel: int, ranks: int, saved: float) -> None:
    blocks = cut(numel, ranks, saved)
    assert blocks.numel >= numel and blocks.block >= blocks.picks
    assert 1 <= blocks.block <= MAX_BLOCK and 1 <= blocks.lanes <= LANES
    gathered = (ranks - 1) * blocks.words * 4
    if numel >= MAX_BLOCK:  # a bucket smaller than a block has no share to save
        assert gathered <= (1 - saved) * ring_bytes(ranks, 4 * numel) + 1e-6


@pytest.mark.parametrize("numel", [1, 6, 200, 3_000, 100_000])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_four_fifths_are_saved_of_all_but_the_smallest_buckets(numel: int, ranks: int) -> None:
    sent = (ranks - 1) * cut(numel, ranks, 0.8).words * 4
    assert sent <= 0.2 * ring_bytes(ranks, 4 * numel) or numel < 20


def test_more_ranks_than_places_fit_are_refused() -> None:
    assert block_for(2, 0.8) == 5 and block_for(4, 0.8) == 10 and block_for(8, 0.8) == 20
    assert block_for(102, 0.8) <= MAX_BLOCK
    with pytest.raises(DaymillError, match="103 ranks would need blocks of 258 entries"):
        block_for(103, 0.8)
    with pytest.raises(DaymillError, match="share of saved bytes is 1"):
        block_for(2, 1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("numel", [1, 97, 5_000])
def test_the_largest_of_each_block_is_taken_and_the_rest_is_left(dtype: torch.dtype, numel: int) -> None:
    flat = torch.randn(numel, generator=torch.Generator().manual_seed(numel)).to(dtype)
    blocks = cut(numel, 4, 0.8)
    words, rest = chosen(flat, blocks)
    assert words.shape == (blocks.words,) and words.element_size() == max(4, flat.element_size())
    picks, shape = (blocks.groups, blocks.picks, blocks.lanes), (blocks.groups, blocks.block, blocks.lanes)
    padded = torch.cat([flat, flat.new_zeros(blocks.numel - numel)]).view(shape)
    places = (words & 255).long().view(picks)
    values = (words & ~255).view(torch.float64 if dtype == torch.float64 else torch.float32).to(dtype)
    largest = padded.abs().topk(blocks.picks, dim=1).values
    assert torch.allclose(values.abs().view(picks), largest, rtol=2**-15)
    put = torch.zeros_like(padded).scatter_add(1, places, values.view(picks)).view(-1)[:numel]
    assert torch.equal(put + rest, flat), "what is sent and what is left are what there was, to the bit"


@pytest.mark.parametrize("ill", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_sent(ill: float) -> None:
    """It must reach the gradient norm of every rank, so that the step is skipped."""
    flat = torch.randn(70, generator=torch.Generator().manual_seed(0))
    flat[33] = ill
    words, _ = chosen(flat, Blocks(1, 10, 7))
    assert int(words[33 % 7]) & 255 == 33 // 7
    assert (~torch.isfinite((words & ~255).view(torch.float32))).nonzero().tolist() == [[33 % 7]]
