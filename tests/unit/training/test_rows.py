"""Rows of a split: labels, and weights where the records carry them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from data.errors import DaymillError
from data.shards import RECORD_SCHEMA, ShardWriter
from training.rows import Rows, load_rows

WEIGHTED = RECORD_SCHEMA.append(pa.field("weight", pa.float32()))
PREPROCESS = {"max_len": 4, "max_chars": 100, "tail": 0.5}


def load(folder: Path, weights: list[float | None] | None, shard_rows: int = 2) -> Rows:
    columns: dict[str, Any] = {
        "id": ["a", "b", "c", "d"],
        "text": ["one", "two", "one two", "two one"],
        "label": ["x", "y", None, "x"],
        "group": [None] * 4,
        "entity": [None] * 4,
        "date": [None] * 4,
        "source": ["s"] * 4,
        "extra": ["{}"] * 4,
    }
    schema = RECORD_SCHEMA
    if weights is not None:
        schema, columns["weight"] = WEIGHTED, weights
    with ShardWriter(folder, schema, shard_rows=shard_rows) as writer:
        writer.write(pa.table(columns, schema=schema))
    words = {"[PAD]": 0, "[UNK]": 1, "[BOS]": 2, "[EOS]": 3, "[SEP]": 4, "[MASK]": 5, "one": 6, "two": 7}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    return load_rows(folder, tokenizer, PREPROCESS)


def test_records_without_a_weight_column_all_count_alike(tmp_path: Path) -> None:
    rows = load(tmp_path, None)
    assert rows.weights is None
    assert rows.labelled().weights is None
    assert rows.names == ["x", "y"]


def test_weights_go_with_their_rows_and_null_is_one(tmp_path: Path) -> None:
    rows = load(tmp_path, [0.5, None, 3.0, 0.0])
    assert rows.weights is not None and rows.weights.tolist() == [0.5, 1.0, 3.0, 0.0]
    assert rows.weights.dtype == "float32"
    taken = rows.labelled().weights
    assert taken is not None and taken.tolist() == [0.5, 1.0, 0.0]


def test_weights_that_are_all_one_are_none(tmp_path: Path) -> None:
    assert load(tmp_path, [1.0, None, 1.0, 1.0]).weights is None


@pytest.mark.parametrize("wrong", [-0.1, float("nan"), float("inf")])
def test_a_weight_that_is_no_weight_is_named_by_the_id_of_its_row(tmp_path: Path, wrong: float) -> None:
    with pytest.raises(DaymillError, match=r"1 rows have a weight .*\(first ids: c\)"):
        load(tmp_path, [1.0, 1.0, wrong, 1.0])
