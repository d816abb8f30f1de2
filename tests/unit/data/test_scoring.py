"""Rating shards: who is judged by the learned model, and who is not."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from data.quality.model import train_quality
from data.quality.weak import weak_examples
from data.samples.grammar import note
from data.scoring import measure, rate
from data.shards import RECORD_SCHEMA, ShardWriter
from data.workers import Local


def test_only_languages_that_the_model_knows_are_judged(tmp_path: Path) -> None:
    draw = random.Random(0)
    sound = [note(draw, "ok") for _ in range(60)]
    known = weak_examples(sound, [], seed=0)
    model = train_quality(known.good, known.bad, 0, known.parents)
    chinese = "我的相机在旅行中突然停止工作，客服一直没有回复，我想知道什么时候可以修好或者退款。" * 2
    texts = [*sound[:5], chinese, "too short"]
    columns = {name: pa.nulls(len(texts), pa.string()) for name in RECORD_SCHEMA.names}
    columns |= {"id": pa.array([str(n) for n in range(len(texts))]), "text": pa.array(texts)}
    with ShardWriter(tmp_path / "records") as writer:
        writer.write(pa.table(columns, schema=RECORD_SCHEMA))

    def judged(languages: list[str] | None) -> list[bool]:
        model.validation.pop("languages", None)
        if languages is not None:
            model.validation["languages"] = languages
        place = tmp_path / "-".join(["model", *(languages or [])])
        model.save(place)
        shards = measure(tmp_path / "records", tmp_path / "work", Local(1), lambda _: None)
        rate(shards, place, place / "measures", Local(1), lambda _: None)
        (path,) = (place / "measures").glob("*.parquet")
        return [value is not None for value in pq.read_table(path)["quality"].to_pylist()]

    assert judged(None) == [True] * 6 + [False]
    assert judged(["en"]) == [True] * 5 + [False, False]
    assert judged(["en", "zh"]) == [True] * 6 + [False]
