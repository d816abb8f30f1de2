"""Ids that were seen: a Python set while they are few, a compiled table of digests when they are many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from data.id_table import IdTable

YOUNG = 1 << 17  # ids in the Python set (about 100 bytes each) before the table takes over


class SeenIds:
    """A set of ids. In the table they are known by 128 bits: see data/id_table.py for the chance of an error."""

    def __init__(self) -> None:
        self.young: set[str] = set()
        self.table: IdTable | None = None

    def admit(self, ids: Sequence[str]) -> list[bool]:
        """Whether each id is new, in order; a second one in the same list is not."""
        if self.table is not None:
            import pyarrow as pa

            return self.admit_array(pa.array(ids, pa.string()))
        answers = []
        young = self.young
        for id_ in ids:
            new = id_ not in young
            if new:
                young.add(id_)
            answers.append(new)
        if len(young) > YOUNG:
            self.grow_up()
        return answers

    def admit_array(self, ids: pa.Array) -> list[bool]:
        """As `admit`, from an Arrow array of strings without nulls; from the first such call on the table is used."""
        import numpy as np

        if self.table is None:
            self.grow_up()
        assert self.table is not None
        _, ends, data = ids.buffers()
        if not len(ids):
            return []
        letters = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
        places = np.frombuffer(ends, np.int32)[ids.offset : ids.offset + len(ids) + 1]
        return self.table.admit(letters, places).tolist()

    def __len__(self) -> int:
        return len(self.young) + (self.table.count if self.table is not None else 0)

    def grow_up(self) -> None:
        import pyarrow as pa

        from data.id_table import IdTable

        young, self.young, self.table = self.young, set(), IdTable()
        self.admit_array(pa.array(young, pa.string()))
