"""Packing and batching: nothing lost, nothing twice, nothing across a boundary, the same every time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.batching import (
    IGNORE,
    POLICIES,
    Policy,
    budget_batches,
    pack,
    pack_documents,
    padded_batches,
    place,
    split_lengths,
    useful_share,
)
from data.tokens import TokenShard

LENGTHS = st.lists(st.integers(0, 40), max_size=60)


def shard(lengths: list[int]) -> TokenShard:
    """Document i is i * 1000, i * 1000 + 1, ...: every token tells where it belongs."""
    documents = [np.arange(n, dtype=np.uint32) + 1000 * i for i, n in enumerate(lengths)]
    return TokenShard(np.concatenate([np.empty(0, np.uint32), *documents]), np.cumsum([0, *lengths]))


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Compiling takes longer than hypothesis grants an example."""
    pack_documents(shard([3]), 2, 0)
    budget_batches([3], 2, cost=1)


def test_lengths_above_a_row_are_cut_and_nothing_is_lost() -> None:
    pieces = split_lengths([4, 2, 3, 1], 3)
    rows = pack(pieces.length, 3)
    assert pieces.length.sum() == 10
    assert sorted(i for row in rows for i in row) == [0, 1, 2, 3, 4]
    assert all(pieces.length[row].sum() <= 3 for row in rows)
    assert len(rows) == 4


@given(LENGTHS, st.integers(1, 16))
def test_pieces_tile_every_document(lengths: list[int], capacity: int) -> None:
    pieces = split_lengths(lengths, capacity)
    for document, length in enumerate(lengths):
        mine = pieces.document == document
        ends = pieces.offset[mine] + pieces.length[mine]
        assert pieces.length[mine].sum() == length
        assert np.array_equal(pieces.offset[mine][1:], ends[:-1])
    assert (pieces.length > 0).all()
    assert (pieces.length <= capacity).all()


@given(st.lists(st.integers(1, 16), max_size=80), st.integers(1, 30))
def test_packing_places_every_piece_once_and_fills_no_row_beyond_its_end(lengths: list[int], window: int) -> None:
    rows = pack(lengths, 16, window)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in row) <= 16 for row in rows)


def test_best_fit_takes_the_fullest_row_that_still_fits() -> None:
    assert pack([6, 7, 3, 2], 10) == [[1, 2], [0, 3]]


def test_packing_is_nearly_full_on_lengths_like_real_ones() -> None:
    lengths = np.clip(np.random.default_rng(0).lognormal(4, 1, 5000).astype(int), 1, 256)
    assert lengths.sum() / (len(pack(lengths, 256)) * 256) > 0.99


@pytest.mark.parametrize("capacity", [512, 2048, 8192])
def test_long_rows_are_full_too(capacity: int) -> None:
    lengths = np.clip(np.random.default_rng(1).lognormal(4.5, 0.8, 100_000).astype(int), 2, 512)
    assert lengths.sum() / (place(lengths, capacity).rows * capacity) > 0.99


def test_a_length_beyond_the_row_is_refused() -> None:
    with pytest.raises(ValueError, match="length 5 at 1"):
        pack([2, 5], 4)


@given(LENGTHS, st.integers(1, 16), st.one_of(st.none(), st.integers(0, 3)))
def test_each_pair_of_neighbors_is_learned_exactly_once(lengths: list[int], capacity: int, seed: int | None) -> None:
    packed = pack_documents(shard(lengths), capacity, seed)
    real = packed.targets != IGNORE
    pairs = sorted(zip(packed.ids[real].tolist(), packed.targets[real].tolist()))
    assert pairs == [(1000 * i + t, 1000 * i + t + 1) for i, n in enumerate(lengths) for t in range(n - 1)]


@given(LENGTHS, st.integers(1, 16))
def test_documents_of_a_row_are_told_apart(lengths: list[int], capacity: int) -> None:
    packed = pack_documents(shard(lengths), capacity, seed=0)
    for ids, targets, docs in zip(packed.ids, packed.targets, packed.docs):
        assert ((docs == -1) == (targets == IGNORE)).all()
        for number in range(docs.max() + 1):
            mine = ids[docs == number]
            assert (np.diff(mine) == 1).all(), "a document's tokens stand together, in order"


def test_packing_depends_on_the_seed_alone() -> None:
    data = shard(list(range(30)))
    first, again, other = (pack_documents(data, 16, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.ids, again.ids)
    assert not np.array_equal(first.ids, other.ids)


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 200), st.one_of(st.none(), st.integers(0, 3)))
def test_batches_hold_every_row_once_within_the_budget(lengths: list[int], budget: int, seed: int | None) -> None:
    batches = budget_batches(lengths, budget, seed)
    assert sorted(int(i) for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= budget


def test_batches_without_a_seed_go_from_short_to_long() -> None:
    lengths = [9, 1, 5, 5, 2]
    assert [lengths[i] for batch in budget_batches(lengths, 10) for i in batch] == sorted(lengths)


def test_sorting_by_length_saves_padding() -> None:
    lengths = np.clip(np.random.default_rng(0).lognormal(4, 1, 2000).astype(int), 1, 256)
    batches = budget_batches(lengths, 4096)
    padded = sum(len(batch) * lengths[batch].max() for batch in batches)
    assert lengths.sum() / padded > 0.95


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@given(lengths=st.lists(st.integers(1, 50), max_size=60), budget=st.integers(1, 200))
def test_every_policy_gives_each_row_once_within_the_budget_and_the_same_again(
    policy: Policy, lengths: list[int], budget: int
) -> None:
    sizes = np.array(lengths, dtype=np.int64)
    batches = policy(sizes, budget)
    assert sorted(int(i) for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or len(batch) * sizes[batch].max() <= budget for batch in batches)
    assert all(len(batch) for batch in batches)
    assert [batch.tolist() for batch in policy(sizes, budget)] == [batch.tolist() for batch in batches]


def price(sizes: list[int], cuts: list[int], cost: int) -> int:
    return sum((end - begin) * sizes[end - 1] + cost for begin, end in zip([0, *cuts], cuts))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 40), st.integers(0, 12))
def test_no_other_cut_of_a_steps_rows_is_cheaper(lengths: list[int], budget: int, cost: int) -> None:
    sizes = sorted(lengths)
    batches = budget_batches(lengths, budget, cost=cost)
    ours = price(sizes, np.cumsum([len(batch) for batch in batches]).tolist(), cost)
    count = len(sizes)
    for chosen in range(1 << (count - 1)):
        cuts = [at for at in range(1, count) if chosen >> (at - 1) & 1] + [count]
        pairs = zip([0, *cuts], cuts)
        if all(end - begin == 1 or (end - begin) * sizes[end - 1] <= budget for begin, end in pairs):
            assert ours <= price(sizes, cuts, cost)


def test_a_steps_buckets_are_95_percent_useful_where_plain_padding_is_not() -> None:
    """32 rows an update, as finetuning takes them, of lengths like those of mails."""
    rng = np.random.default_rng(0)
    for longest in (192, 512, 2048):
        steps = np.clip(rng.lognormal(5.6, 1.1, (200, 32)).astype(int), 8, longest)
        share = {
            name: sum(map(np.sum, steps)) / sum(np.sum(s) / useful_share(s, policy(s, 4096)) for s in steps)
            for name, policy in POLICIES.items()
        }
        assert share["buckets"] > 0.95 > share["padded"]


def test_plain_padding_keeps_the_order() -> None:
    assert [batch.tolist() for batch in padded_batches([2, 5, 1, 1, 9, 1], 10)] == [[0, 1], [2, 3], [4], [5]]
