"""What a cluster is given and what it does with band keys; the cluster itself is in tests/behavior/test_dask.py."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.dedup.sign import VetoTask
from data.engine import Again, absolute, keys_of_part, meeting


@dataclass(frozen=True)
class Piece:
    out: Path
    number: int = 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 20))))
def test_rows_meet_whose_key_and_band_another_row_has(keyed: list[tuple[int, int, int]]) -> None:
    keyed = list({(band, row): (key, band, row) for key, band, row in keyed}.values())  # a row has one key a band
    frame = keys_of_part(None)
    if keyed:
        key, band, row = (np.array(column) for column in zip(*keyed, strict=True))
        frame = pd.DataFrame({"key": key.astype(np.uint64), "band": band.astype(np.int16), "row": row})
    expected = {
        row
        for key, band, row in keyed
        if any((key, band) == (other, its) and row != another for other, its, another in keyed)
    }
    assert meeting(frame)["row"].tolist() == sorted(expected)


def test_paths_are_absolute_wherever_they_stand_in_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    task = VetoTask((Path("a/texts.bin"), tmp_path / "b"), np.zeros((1, 3)), np.zeros((1, 3)), None)  # type: ignore[arg-type]
    assert absolute(task).files == (tmp_path / "a/texts.bin", tmp_path / "b")
    assert absolute(Piece(Path("out"), 7)) == Piece(tmp_path / "out", 7)
    assert absolute(3) == 3


def put_in_place(piece: Piece) -> int:
    beside = piece.out.with_name(".beside")
    beside.mkdir()
    (beside / "file").write_text(str(piece.number))
    os.replace(beside, piece.out)
    return piece.number


def test_a_piece_whose_worker_was_lost_is_done_again(tmp_path: Path) -> None:
    piece = Piece(tmp_path / "out", 7)
    assert put_in_place(piece) == 7
    with pytest.raises(OSError):
        put_in_place(piece)
    (tmp_path / ".beside/file").unlink()
    (tmp_path / ".beside").rmdir()
    assert Again(put_in_place)(piece) == 7
    assert (piece.out / "file").read_text() == "7"
