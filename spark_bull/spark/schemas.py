"""The fixed schemas of reads: one per `view`, and the schema of claimed jobs.

Columns of jobs have Bull's own names; payloads are JSON text, times are TIMESTAMP. All columns are nullable, so that
users may specify any subset of a schema, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from pyspark.sql.types import DataType, StructField, StructType

from spark_bull.core.dialects.fields import CLAIMED_FIELDS, FIELDS, FieldKind
from spark_bull.core.errors import OptionError, did_you_mean
from spark_bull.core.options.parse import REDIS_PREFIX, is_spark_option, parse_options, scopes_of, unknown_option
from spark_bull.core.options.parts import Options
from spark_bull.core.options.table import CollectOptions, EventsOptions, ReadOptions
from spark_bull.core.options.values import choose_mode
from spark_bull.spark.json.json_values import check_type
from spark_bull.spark.json.types import TYPED_COLUMNS, ddl_of, is_inferred, parse_type

NO_TABLES: Final = (
    "Spark does not pass the OPTIONS of a table of the catalog to data sources in Python; "
    "use CREATE TEMPORARY VIEW … USING bull OPTIONS (queue '…')"
)
QUEUE_REQUIRED: Final = (
    f"expected the option `queue` (names, comma separated, or globs), got none. If this is a table: {NO_TABLES}"
)
#: The property with the name of the data source, which Spark passes when it creates a table.
_OF_TABLE: Final = "provider"


def table_of(*columns: str) -> StructType:
    """A schema of these columns, by name and type in SQL; a text can have several."""
    return cast("StructType", parse_type("columns", ", ".join(columns)))


_TYPES: Final[Mapping[FieldKind, str]] = {
    "text": "string",
    "json": "string",
    "count": "int",
    "stalls": "int",
    "number": "bigint",
    "time": "timestamp",
    "traces": "array<string>",
}


def _job_columns() -> Iterator[str]:
    for name in ("queue", "id", "state"):
        yield f"{name} string"
    for name, field in FIELDS.items():
        yield f"{name} {_TYPES[field.kind]}"
        if name == "delay":
            # Of a delayed job: derived from its score, not a field of its hash.
            yield "runAt timestamp"


SCHEMAS: Final[dict[str, StructType]] = {
    "jobs": table_of(*_job_columns()),
    "counts": table_of("queue string, state string, jobs bigint"),
    "queues": table_of(
        "queue string, protocol string, version string, paused boolean, concurrency int, jobs bigint",
        "intakeOpen boolean, ids bigint, waitingSince timestamp, lastActiveOn timestamp, addedPerMinute double",
        "finishedPerMinute double, max bigint, durationMs bigint, overdue bigint, overdueSince timestamp",
        "pauseReason string",
    ),
    "writes": table_of(
        "queue string, id string, state string, delivery string, jobs bigint, added bigint, duplicates bigint",
        "deduplicated bigint, rejected bigint, dropped bigint, replicas bigint, changed bigint, missing bigint",
        "locked bigint, wrongState bigint, startedOn timestamp, finishedOn timestamp, durationMs bigint",
        "appId string, version bigint",
    ),
    "logs": table_of("queue string, id string, line int, log string"),
    "dependencies": table_of("queue string, id string, childQueue string, childId string, state string, value string"),
    "flows": table_of(
        "queue string, id string, depth int, jobQueue string, jobId string, parentQueue string, parentId string",
        "dependency string, children bigint, name string, state string, data string, returnvalue string",
        "failedReason string, attemptsMade int, timestamp timestamp, processedOn timestamp, finishedOn timestamp",
    ),
    "schedulers": table_of(
        "queue string, id string, name string, every bigint, pattern string, tz string, next timestamp, limit bigint",
        "offset bigint, startDate timestamp, endDate timestamp, iterationCount bigint, data string, opts string",
    ),
    "groups": table_of(
        "queue string, group string, waiting bigint, active bigint, max bigint, duration bigint, concurrency bigint",
        "paused boolean, restsUntil timestamp",
    ),
    "workers": table_of("queue string, name string, address string, age bigint, idle bigint"),
    "metrics": table_of("queue string, state string, minute timestamp, jobs bigint, total bigint"),
    "stats": table_of(
        "queue string, name string, jobs map<string,bigint>, isEstimate boolean, oldestWaitingMs bigint",
        "timed bigint, waitP50 double, waitP95 double, waitP99 double, runP50 double, runP95 double, runP99 double",
        "workMs bigint, addedPerSecond double, addedOverMs bigint, finishedPerSecond double, finishedOverMs bigint",
        "drainedInMs bigint",
    ),
    "events": table_of(
        "queue string, id string, event string, jobId string, prev string, data string, returnvalue string",
        "failedReason string, delay bigint, timestamp timestamp, fields map<string,string>",
    ),
}

#: The job fields in CLAIM_SCHEMA.
CLAIM_FIELDS: Final = (
    *("name", "data", "opts", "timestamp", "attemptsMade", "attemptsStarted", "stalledCounter"),
    *("priority", "progress", "parentKey", "deferredFailure"),
)
#: The columns of claimed jobs. mode=settle requires `id` and `token`.
CLAIM_SCHEMA: Final = table_of(
    "queue string, id string, token string", *(f"{name} {_TYPES[CLAIMED_FIELDS[name].kind]}" for name in CLAIM_FIELDS)
)


def check_claimed_columns(schema: StructType) -> None:
    """Raises OptionError unless all are columns of claimed jobs, which can be NULL."""
    known = {(field.name, field.dataType) for field in CLAIM_SCHEMA}
    wrong = [
        f"{field.name} {_given(field)}"
        for field in schema
        if (field.name, field.dataType) not in known or not field.nullable
    ]
    if wrong:
        raise OptionError(
            f"expected columns of claimed jobs in the schema with mode=claim, of their types, got: {', '.join(wrong)}"
        )


def read_options(raw: Mapping[str, str]) -> ReadOptions:
    """Parses the options of a read. Raises OptionError for an invalid option, and if `queue` is missing."""
    options = parse_options(raw, ReadOptions)
    if not options.queue and options.view != "queues":
        raise OptionError(QUEUE_REQUIRED)
    return options


def schema_of(raw: Mapping[str, str], infer: Callable[[Any, str], str]) -> StructType | str:
    """Returns the schema of the view in the options, or of a stream: as DDL if columns have types of the user.

    infer: infers the type of a column from jobs. Raises OptionError as `read_options` does.
    """
    if _OF_TABLE in raw:
        raise OptionError(f"expected no table: {NO_TABLES}")
    # Spark requests the schema before it is known whether this is a stream, whose options are checked later.
    stream: type[Options] = EventsOptions if shows_events(raw) else CollectOptions
    for name in raw:
        lowered = name.lower()
        if scopes := scopes_of(name):
            if stream in scopes and ReadOptions not in scopes:
                given = parse_options(raw, stream)
                return _typed(given.value("view") or "jobs", given, infer)
        elif not is_spark_option(lowered) and not lowered.startswith(REDIS_PREFIX):
            raise unknown_option(name, ReadOptions, stream)
    options = read_options(raw)
    return _typed(options.view, options, infer)


def _typed(view: str, options: Options, infer: Callable[[Any, str], str]) -> StructType | str:
    """Returns the schema of a view, with the types that the options give to columns of JSON text."""
    given = {column: text for column, option in TYPED_COLUMNS.items() if (text := options.value(option)) is not None}
    if not given:
        return SCHEMAS[view]
    if view != "jobs":
        raise OptionError(f"expected no `{TYPED_COLUMNS[next(iter(given))]}` with view={view}: it is for jobs")
    types = {field.name: field.dataType.simpleString() for field in SCHEMAS[view]}
    for column, text in given.items():
        types[column] = infer(options, column) if is_inferred(text) else ddl_of(TYPED_COLUMNS[column], text)
    return ", ".join(f"`{name}` {kind}" for name, kind in types.items())


def shows_events(raw: Mapping[str, str]) -> bool:
    """Whether the option `view` is `events`."""
    return any(name.lower() == "view" and value.lower() == "events" for name, value in raw.items())


def mode_of(raw: Mapping[str, str]) -> str | None:
    """Parses the option `mode`, None if it is not given. Raises OptionError for an unknown one."""
    given = next((value for name, value in raw.items() if name.lower() == "mode"), None)
    return None if given is None else str(choose_mode("mode", given))


def columns_of(schema: StructType, view: str) -> list[str]:
    """Returns the view's column names for a schema specified by the user, in the user's order.

    Raises OptionError for an unknown column, or a type other than the view's.
    """
    known = {field.name.lower(): field for field in SCHEMAS[view]}
    names = []
    for field in schema:
        own = known.get(field.name.lower())
        if own is None:
            listed = ", ".join(f"{f.name} {_sql(f.dataType)}" for f in known.values())
            near = did_you_mean(field.name, [f.name for f in known.values()])
            raise OptionError(f"view `{view}` has no column `{field.name}`{near}; it has: {listed}")
        is_typed = view == "jobs" and own.name in TYPED_COLUMNS
        if is_typed:
            check_type(TYPED_COLUMNS[own.name], field.dataType)
        if (field.dataType != own.dataType and not is_typed) or not field.nullable:
            raise OptionError(
                f"expected column `{own.name}` of view `{view}` to be {_sql(own.dataType)}, got: {_given(field)}; "
                "cast it after the read (JSON text: from_json or parse_json)"
            )
        names.append(own.name)
    if not names:
        raise OptionError(f"expected at least one column of view `{view}`, got an empty schema")
    return names


def _given(field: StructField) -> str:
    return _sql(field.dataType) + ("" if field.nullable else " NOT NULL")


def _sql(kind: DataType) -> str:
    return kind.simpleString().upper()
