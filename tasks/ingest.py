"""Stage ingest: the user's files, whatever their format, as record shards, with every refused record accounted for."""

from __future__ import annotations

import sys

from pydantic import Field

from data.drift import drift_warnings
from data.ingest import Places, ingest
from data.readers.item import MB, Limits
from data.records import source_files
from data.validate import field_map
from tasks.params import Params
from tasks.stage import Context, Result, run

RECORDS = "artifacts/ingest/records"
QUARANTINE = "artifacts/ingest/quarantine.jsonl"
LEDGER = "artifacts/ingest/ledger.parquet"


class Fields(Params):
    """Their names for our fields; dots go into nested objects."""

    id: str | None = Field(default="id", description="unique over all files; null: made of the content")
    text: str | list[str] = Field(
        default="text", description="what the model reads; several are joined by a blank line"
    )
    label: str | None = Field(default="label", description="what the model learns; strings, booleans and whole numbers")
    group: str | None = Field(default="group", description="a slice or protected attribute that metrics are told by")
    entity: str | None = Field(
        default="entity", description="whom or what a record is about; never on both sides of a split"
    )
    date: str | None = Field(default="date", description="ISO 8601")


class Ingest(Params):
    """Knobs of ingest."""

    source: str = Field(description="a file or a folder of files")
    fields: Fields = Fields()
    max_record_mb: float = Field(default=10.0, gt=0, le=1000, description="MB (10^6 bytes)")
    max_depth: int = Field(default=64, ge=1, le=200, description="containers inside each other, the record included")
    shard_rows: int = Field(default=50_000, ge=1, description="records a Parquet part")
    quarantine_kb: float = Field(
        64.0, ge=0, description="kB (10^3 bytes) of a refused record's own bytes that are kept"
    )


def main(params: Ingest, ctx: Context) -> Result:
    files = source_files(params.source)
    names = field_map(params.fields.model_dump(exclude_unset=True))
    limits = Limits(int(params.max_record_mb * MB), params.max_depth, int(params.quarantine_kb * 1000))
    with (
        ctx.out(RECORDS) as records,
        ctx.out(QUARANTINE) as quarantine,
        ctx.out(LEDGER) as ledger,
        ctx.progress(None, "records") as bar,
    ):
        places = Places(records, quarantine, ledger)
        report = ingest(
            files,
            places,
            names,
            limits,
            params.shard_rows,
            advance=lambda n, source: bar.advance(n, source),
            work=ctx.work / "journal",
            say=lambda words: print(f"ingest: {words}", flush=True),
        )
    metrics = report.metrics()
    for warning in drift_warnings(metrics["schema_drift"]):
        print(f"warning: ingest: {warning}", file=sys.stderr, flush=True)
    key = f"{report.kept:,} kept, {report.quarantined:,} quarantined"
    return Result(report.rows_in, report.kept, key, metrics)


if __name__ == "__main__":
    run("ingest", Ingest, main)
