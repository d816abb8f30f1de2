"""What is chosen of a block, and how many blocks there are."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data.errors import DaymillError
from training.parallel.blockwise import LANES, MAX_BLOCK, PLACE_BYTES, Blocks, block_for, chosen, cut
from training.parallel.wire import ring_bytes


@given(st.integers(1, 200_000), st.integers(2, 64), st.floats(0.5, 0.8))
def test_blocks_cover_a_bucket_and_save_what_is_asked(numel: int, ranks: int, saved: float) -> None:
    blocks = cut(numel, ranks, saved)
    assert blocks.count * blocks.block >= numel
    assert 1 <= blocks.block <= MAX_BLOCK and 1 <= blocks.lanes <= LANES
    gathered = (ranks - 1) * blocks.count * (4 + PLACE_BYTES)
    if numel >= MAX_BLOCK:  # a bucket smaller than a block has no share to save
        assert gathered <= (1 - saved) * ring_bytes(ranks, 4 * numel) + 1e-6


@pytest.mark.parametrize("numel", [1, 6, 200, 3_000, 100_000])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_four_fifths_are_saved_of_all_but_the_smallest_buckets(numel: int, ranks: int) -> None:
    sent = (ranks - 1) * cut(numel, ranks, 0.8).count * 5
    assert sent <= 0.2 * ring_bytes(ranks, 4 * numel) or numel < 25


def test_more_ranks_than_places_fit_are_refused() -> None:
    assert block_for(2, 0.8) == 7 and block_for(4, 0.8) == 13 and block_for(8, 0.8) == 25
    assert block_for(81, 0.8) <= MAX_BLOCK
    with pytest.raises(DaymillError, match="82 ranks would need blocks of 257 entries"):
        block_for(82, 0.8)
    with pytest.raises(DaymillError, match="share of saved bytes is 1"):
        block_for(2, 1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("numel", [1, 97, 5_000])
def test_the_largest_of_each_block_is_taken_and_the_rest_is_left(dtype: torch.dtype, numel: int) -> None:
    flat = torch.randn(numel, generator=torch.Generator().manual_seed(numel)).to(dtype)
    blocks = cut(numel, 4, 0.8)
    values, places, rest = chosen(flat, blocks)
    assert len(values) == len(places) == blocks.count and places.dtype == torch.uint8
    shape = (blocks.groups, blocks.block, blocks.lanes)
    padded = torch.cat([flat, flat.new_zeros(blocks.count * blocks.block - numel)]).view(shape)
    largest = padded.abs().amax(1).view(-1)
    assert torch.allclose(values.abs().float(), largest.float(), rtol=2**-15)
    put = torch.zeros_like(padded).scatter(
        1, places.long().view(blocks.groups, 1, -1), values.view(blocks.groups, 1, -1)
    )
    assert torch.equal(put.view(-1)[:numel] + rest, flat)


@pytest.mark.parametrize("ill", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_never_left_behind(ill: float) -> None:
    """It must reach the gradient norm of every rank, so that the step is skipped."""
    flat = torch.randn(70, generator=torch.Generator().manual_seed(0))
    flat[33] = ill
    values, _, rest = chosen(flat, Blocks(1, 10, 7))
    assert not torch.isfinite(values).all() and torch.isfinite(rest).all()
