"""What the kept records must look like: the one adapter to Great Expectations.

The library takes seconds to import, calls home unless told not to, and its own pages load scripts from elsewhere. So it
is imported here only, late, with its telemetry off before the import, and its results leave as plain `Check`s.
"""

from __future__ import annotations

import fnmatch
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.errors import DaymillError

if TYPE_CHECKING:
    import pandas as pd

MAX_EXAMPLES = 5
MAX_FAILURES = 10
# What a suite sees of a record; `content` is a hash that two texts share when they say the same.
COLUMNS = ("id", "label", "group", "entity", "date", "source", "chars", "content", "language")
FRESH = re.compile(r"now(?:-(\d+)([dh]))?")


@dataclass(frozen=True)
class Suite:
    """A named list of expectations, for all records or for those whose source matches one of `only_sources`."""

    name: str
    path: Path
    expectations: list[dict[str, Any]]
    only_sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """One expectation and what came of it. `examples` are ids; no value of a record is in here."""

    suite: str
    expectation: str
    column: str
    bounds: dict[str, Any]
    notes: str
    passed: bool
    rows: int
    unexpected: int | None
    observed: str
    examples: list[str]
    error: str = ""


def load_suite(path: Path) -> Suite:
    """A suite from its JSON file. Raises DaymillError with the file and line or key that cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DaymillError(f"{path}: no such suite; clean.suites in params.yaml names it") from None
    except json.JSONDecodeError as error:
        raise DaymillError(f"{path}:{error.lineno}: not JSON ({error.msg})") from None
    if not isinstance(found, dict) or not isinstance(found.get("expectations"), list):
        raise DaymillError(f"{path}: expected an object with a list named `expectations`")
    for number, item in enumerate(found["expectations"], start=1):
        if not isinstance(item, dict) or not isinstance(item.get("type"), str):
            raise DaymillError(f"{path}: expectation {number} has no `type`; see docs/your-data.md for an example")
    patterns = found.get("only_sources") or []
    return Suite(str(found.get("name", path.stem)), path, found["expectations"], tuple(map(str, patterns)))


def as_frame(columns: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    """The frame that suites look at, from lists by the names of COLUMNS; dates become moments in UTC."""
    import pandas as pd

    return pd.DataFrame(
        {
            name: pd.Series(
                pd.to_datetime(pd.Series(values, dtype="str"), utc=True, errors="coerce", format="ISO8601")
            ).dt.tz_localize(None)
            if name == "date"
            else pd.Series(values, dtype="int64" if name == "chars" else "str")
            for name, values in columns.items()
        }
    )


def validate(frame: pd.DataFrame, suites: Sequence[Suite]) -> list[Check]:
    """Run the suites on a frame with the columns COLUMNS (`chars` is the length of the text); order as in the files.

    A suite whose `only_sources` match no record is left out. Raises DaymillError for an expectation that the library
    does not know or cannot take.
    """
    checks: list[Check] = []
    for suite in suites:
        rows = _matching(frame, suite.only_sources)
        if suite.expectations and (len(rows) or not suite.only_sources):
            checks += _run(rows, suite)
    return checks


def refuse_failures(checks: Sequence[Check], docs: Path) -> None:
    """Raise DaymillError naming failed expectations (at most 10) with example ids (at most 5 each)."""
    failed = [check for check in checks if not check.passed]
    if not failed:
        return
    lines = [f"{len(failed)} of {len(checks)} expectations failed; the page {docs} shows all"]
    for check in failed[:MAX_FAILURES]:
        lines.append(f"  {check.suite}: {describe(check)}: {found(check)}")
    lines.append("  mend the records or the ingest fields, or edit the suite where the expectation is wrong")
    raise DaymillError("\n".join(lines))


def describe(check: Check) -> str:
    """The expectation in words: `label: values to be in set (value set ["ham", "spam"])`."""
    words = re.sub("^expect_(table_|column_)?", "", check.expectation).replace("_", " ")
    bounds = ", ".join(f"{name.strip('_').replace('_', ' ')} {_bound(value)}" for name, value in check.bounds.items())
    return f"{check.column or 'table'}: {words}" + (f" ({bounds})" if bounds else "")


def _bound(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value if isinstance(value, str) else f"{value:,.6g}" if value % 1 else f"{value:,.0f}"


def found(check: Check) -> str:
    """What was found instead, in words, with example ids."""
    if check.error:
        return check.error
    if check.unexpected is None:
        return f"found {check.observed}"
    said = f"{check.unexpected:,} of {check.rows:,} records"
    return said + (f", such as {', '.join(check.examples)}" if check.examples and not check.passed else "")


def _matching(frame: pd.DataFrame, patterns: Sequence[str]) -> pd.DataFrame:
    if not patterns:
        return frame
    sources = {
        source
        for source in frame["source"].unique()
        if any(fnmatch.fnmatchcase(f"/{source}", f"*/{pattern}") for pattern in patterns)
    }
    return frame[frame["source"].isin(list(sources))]


def _run(frame: pd.DataFrame, suite: Suite) -> list[Check]:
    gx = _library()
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    batch = (
        context.data_sources.add_pandas("records")
        .add_dataframe_asset("kept")
        .add_batch_definition_whole_dataframe("all")
    )
    expectations = []
    for number, item in enumerate(suite.expectations, start=1):
        # results come back in another order: the number finds the file's
        meta = {"number": number, "notes": str((item.get("meta") or {}).get("notes", ""))}
        try:
            expectations += gx.ExpectationSuite(
                name=f"{number}", expectations=[{"type": item["type"], "kwargs": _moments(item), "meta": meta}]
            ).expectations
        except Exception as error:  # the library raises what its own validation raises, of several kinds
            reason = " ".join(str(error).split())[:300]
            raise DaymillError(f"{suite.path}: expectation {number} ({item['type']}): {reason}") from None
        if len(expectations) < number:
            raise DaymillError(f"{suite.path}: expectation {number}: there is no {item['type']}")
    named = context.suites.add(gx.ExpectationSuite(name=suite.name, expectations=expectations))
    definition = context.validation_definitions.add(gx.ValidationDefinition(name=suite.name, data=batch, suite=named))
    result_format = {
        "result_format": "SUMMARY",
        "unexpected_index_column_names": ["id"],
        "partial_unexpected_count": MAX_EXAMPLES,
    }
    try:
        outcome = definition.run(batch_parameters={"dataframe": frame}, result_format=result_format)
    except TypeError as error:  # its results hold numpy values that it then cannot write: quantiles do
        raise DaymillError(
            f"{suite.path}: the library fails on one of these expectations ({error}); quantiles are known to do that, "
            "median, min, max and mean work"
        ) from None
    results = sorted(outcome.results, key=lambda result: result.expectation_config.meta["number"])
    return [_check(suite.name, result, len(frame)) for result in results]


def _moments(item: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, bounds of dates as moments: the library compares them with nothing else.

    `now-2d` and `now-36h` are moments before this run: how fresh records must be.
    """
    import pandas as pd

    kwargs = dict(item.get("kwargs", {}))
    for bound in ("min_value", "max_value"):
        value = kwargs.get(bound)
        if kwargs.get("column") == "date" and isinstance(value, str):
            fresh = FRESH.fullmatch(value.replace(" ", ""))
            if fresh:
                age = pd.Timedelta(hours=int(fresh[1] or 0) * (1 if fresh[2] == "h" else 24))
                kwargs[bound] = pd.Timestamp.now("UTC").tz_localize(None) - age
            else:
                kwargs[bound] = pd.Timestamp(value)
    return kwargs


def _library() -> Any:
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read at import
    # it logs the error of a missing column with a traceback, and so do our checks, without one
    logging.getLogger("great_expectations").setLevel(logging.CRITICAL)
    import great_expectations as gx

    return gx


def _check(suite: str, result: Any, rows: int) -> Check:
    config = result.expectation_config
    kwargs = {name: value for name, value in config.kwargs.items() if name not in {"batch_id", "column"}}
    values = result.result or {}
    unexpected = values.get("unexpected_count")
    examples = [str(item["id"]) for item in values.get("partial_unexpected_index_list") or []]
    return Check(
        suite=suite,
        expectation=config.type,
        column=str(config.kwargs.get("column", "")),
        bounds=kwargs,
        notes=config.meta.get("notes", ""),
        passed=bool(result.success),
        rows=int(values.get("element_count", rows)),
        unexpected=None if unexpected is None else int(unexpected),
        observed=_observed(values, of_type="of_type" in config.type),
        examples=list(dict.fromkeys(examples))[:MAX_EXAMPLES],
        error="" if result.success else _error(result.exception_info),
    )


def _observed(values: Mapping[str, Any], of_type: bool) -> str:
    """A count, a measure or a type; lists are given by their length and texts not at all: they may be labels."""
    if values.get("details", {}).get("mismatched"):
        return json.dumps(values["details"]["mismatched"])
    observed = values.get("observed_value")
    if observed is None:
        return ""
    if isinstance(observed, (list, tuple, set, dict)):
        return f"{len(observed)} values"
    if isinstance(observed, str) and not of_type:
        return "another value"
    return f"{observed:g}" if isinstance(observed, float) else str(observed)


def _error(info: Mapping[str, Any]) -> str:
    """What the library could not do. Its own words only where they name a missing column: others may quote values."""
    entries = [info] if "raised_exception" in info else [entry for entry in info.values() if isinstance(entry, Mapping)]
    raised = [entry for entry in entries if entry.get("raised_exception")]
    if not raised:
        return ""
    message = " ".join(str(raised[0]["exception_message"]).split())
    if "does not exist" in message:
        return message[:300]
    kinds = re.findall(r"^(?:\w+\.)*(\w+(?:Error|Exception))\b", str(raised[0]["exception_traceback"]), re.MULTILINE)
    return f"cannot be computed on this column ({kinds[0] if kinds else 'an error'}); is it of the right type?"
