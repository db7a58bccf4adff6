"""Checks the properties of jobs and encodes them as the scripts expect them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

from spark_bull.core.dialects.base import DEFAULT_NAME, MARKS, Dialect, Prepared, check_eta, json_text, opts_object
from spark_bull.core.dialects.encode.chunks import (
    OWN,
    Column,
    EncodedJobs,
    Shapes,
    collapsed,
    converted,
    listed,
    shapes_of,
)
from spark_bull.core.dialects.fields import STALLED_PRESET
from spark_bull.core.dialects.terms import (
    AT_MOST_ONCE,
    DEDUPLICATION,
    DELIVERY,
    EXPIRE_AFTER_MS,
    EXPIRE_AT,
    ID_MARK,
    LOCK_MS,
    PARENT,
    PARENT_MARK,
    SPREAD_MS,
    SPREAD_SEED,
    Deduplications,
    Expiry,
    ParentJob,
    check_not_stored,
    check_start,
    delay_within,
    take_expiry,
    take_parent,
    take_spread,
)
from spark_bull.core.errors import OptionError, SparkBullError, encodable, expected
from spark_bull.core.model.jobs import NewJob
from spark_bull.core.options.table import QueueOptions, WriteOptions

T = TypeVar("T")

#: Properties that become options of the job, by their names in columns and in Node.
OPTION_NAMES: Final = (
    "priority",
    "attempts",
    "backoff",
    "lifo",
    "removeOnComplete",
    "removeOnFail",
    "deduplication",
    "parent",
    DELIVERY,
    LOCK_MS,
    "opts",
)
#: The largest integer that JavaScript has: no time is later.
_MOST_MS: Final = 2**53 - 1
#: Properties that differ from job to job; the options text has marks for them, or nothing.
ROW_NAMES: Final = ("jobId", "delay", "runAt", "timestamp", EXPIRE_AFTER_MS, EXPIRE_AT, SPREAD_MS)
NAMES: Final = ("data", "name", *ROW_NAMES, *OPTION_NAMES)
#: The fields of a NewJob by these names.
_FIELDS: Final = {name: QueueOptions.spelled(name) for name in NAMES}
_MARKS: Final = (*MARKS.values(), ID_MARK, PARENT_MARK)
#: Properties that an option of the same name sets for all jobs.
_NO_DEFAULT: Final = ("data", "jobId", "runAt", "timestamp", PARENT, DELIVERY, EXPIRE_AT)
DEFAULT_NAMES: Final = tuple(name for name in NAMES if name not in _NO_DEFAULT)
#: Properties of which a row has at most one; the one that a row gives replaces a default of the other.
_ALTERNATIVES: Final = (("delay", "runAt"), (EXPIRE_AFTER_MS, EXPIRE_AT))


def defaults_of(options: WriteOptions | QueueOptions) -> dict[str, Any]:
    """The defaults of all jobs that options set, as `encode` expects them."""
    defaults = {name: value for name in DEFAULT_NAMES if (value := options.value(name)) is not None}
    if options.delivery == AT_MOST_ONCE:
        # The other values are about the write itself.
        defaults[DELIVERY] = AT_MOST_ONCE
    return defaults | carrying(options.telemetry if isinstance(options, WriteOptions) else "")


def carrying(context: str) -> dict[str, Any]:
    """The default that gives a trace context to jobs without `telemetry` of their own; "": no default."""
    return {"telemetry": {"metadata": context}} if context else {}


def check_defaults(dialect: Dialect, defaults: Mapping[str, Any]) -> None:
    """Raises OptionError or DialectError for defaults that a job can't have."""
    _Row(dialect, defaults).encode({})


def encode(
    dialect: Dialect, rows: Mapping[str, Sequence[Any]], defaults: Mapping[str, Any], numbers: Sequence[int | str]
) -> EncodedJobs:
    """Checks the rows of a batch and encodes them.

    rows: lists of equal length by the names of NAMES; `data` is JSON text; None means not given. defaults: values of
    properties that a row does not give. numbers: row numbers, or names, for errors. Raises OptionError or
    DialectError with the row and the property.
    """
    data = _data(dialect, rows["data"], numbers)
    default_name = defaults.get("name", DEFAULT_NAME)
    names = [default_name if name is None else name for name in rows.get("name", (None,))]
    _check_names(names, numbers)
    columns = {name: rows[name] for name in (*ROW_NAMES, *OPTION_NAMES) if name in rows}
    encoded = _Row(dialect, defaults).encode_batch(columns, numbers)
    _check_size(data, encoded, numbers)
    column = encoded.column
    return EncodedJobs(
        n=len(data),
        data=data,
        name=collapsed(names),
        opts=column(lambda row: row.prepared.opts),
        marked=any(mark in text for text in {row.prepared.opts for row in encoded.rows} for mark in _MARKS),
        job_id=column(lambda row: row.job_id, "jobId"),
        delay=converted(column(lambda row: row.delay, "delay"), lambda ms: ms or None),
        run_at=column(lambda row: row.run_at, "runAt"),
        timestamp=column(lambda row: row.timestamp, "timestamp"),
        priority=column(lambda row: row.prepared.priority or None),
        lifo=column(lambda row: row.prepared.lifo or None),
        attempts=column(lambda row: row.prepared.attempts if row.prepared.attempts > 1 else None),
        deduplication_id=column(lambda row: row.deduplication_id, DEDUPLICATION),
        deduplication=column(lambda row: row.prepared.deduplication),
        parent_queue=column(lambda row: row.parent and row.parent.queue),
        parent_id=column(lambda row: row.parent and row.parent.id),
        on_failure=column(lambda row: row.prepared.on_failure),
        expire_after=column(lambda row: row.expiry.after),
        expire_at=column(lambda row: row.expiry.at),
        stalled_counter=column(lambda row: STALLED_PRESET if row.prepared.at_most_once else None),
    )


class _EncodedRow(NamedTuple):
    prepared: Prepared
    job_id: str | None
    delay: int | None
    run_at: int | None
    timestamp: int | None
    deduplication_id: str | None
    parent: ParentJob | None
    expiry: Expiry


class _Encoded(NamedTuple):
    """The encoded rows of a batch: one for each row, or for each of its shapes.

    of_row: the index in `rows` for each row of the batch; None: they are in the same order, or one for all of them.
    own: the properties whose values differ between rows of a shape.
    """

    rows: Sequence[_EncodedRow]
    of_row: Sequence[int] | None = None
    own: Mapping[str, Sequence[Any]] = {}

    def column(self, value_of: Callable[[_EncodedRow], T | None], name: str = "") -> Column[T]:
        """The values of a property. name: of the property, if rows of a shape differ in it."""
        shared = collapsed([value_of(row) for row in self.rows])
        if isinstance(shared, list) and self.of_row is not None:
            shared = [shared[index] for index in self.of_row]
        given = self.own.get(name)
        if given is None:
            return shared
        others = listed(shared, len(given))
        return collapsed([other if value is None else value for value, other in zip(given, others, strict=True)])

    def row(self, position: int) -> _EncodedRow:
        """The encoded row of a row of the batch."""
        index = position if self.of_row is None else self.of_row[position]
        return self.rows[min(index, len(self.rows) - 1)]


class _Row:
    """Encodes rows one by one. Rows with the same options share one options text."""

    def __init__(self, dialect: Dialect, defaults: Mapping[str, Any]) -> None:
        self._dialect = dialect
        self._defaults = defaults
        self._prepared: dict[tuple[Any, ...], Prepared] = {}
        self._deduplications = Deduplications(
            dialect.name, dialect.deduplication_option, dialect.deduplication_members, defaults.get(DEDUPLICATION)
        )
        self._seed = defaults.get(SPREAD_SEED, "")

    @property
    def is_spreading(self) -> bool:
        """Whether jobs differ in their delays by default."""
        return bool(self._merged({}).get(SPREAD_MS))

    def encode_batch(self, columns: Mapping[str, Sequence[Any]], numbers: Sequence[int | str]) -> _Encoded:
        """Encodes the rows with these properties. numbers: row numbers, for errors."""
        if not columns and not self.is_spreading:
            return _Encoded([self.encode({})])
        names = list(columns)
        shapes = self._shapes_of(columns)
        if shapes is None:
            rows = zip(*columns.values(), strict=True) if columns else [()] * len(numbers)
            return _Encoded(self.encode_rows(names, rows, numbers))
        own = {name: column for name, column in columns.items() if name in OWN}
        if "jobId" in own:
            own["jobId"] = [None if job_id is None else str(job_id) for job_id in own["jobId"]]
        firsts = ([column[position] for column in columns.values()] for position in shapes.first)
        encoded = self.encode_rows(names, firsts, [numbers[position] for position in shapes.first])
        return _Encoded(encoded, shapes.of_row, own)

    def _shapes_of(self, columns: Mapping[str, Sequence[Any]]) -> Shapes | None:
        """The shapes of rows with these properties; None if the rows must be encoded one by one."""
        if not columns or not next(iter(columns.values())) or not self._has_plain_defaults:
            return None
        job_ids = [str(job_id) for job_id in columns.get("jobId", ()) if job_id is not None]
        if not self._dialect.are_plain_ids(job_ids):
            try:
                for job_id in job_ids:
                    self._dialect.check_job_id(job_id)
            except OptionError:
                return None
        return shapes_of(columns, self._defaults.get("delay") or 0)

    @cached_property
    def _has_plain_defaults(self) -> bool:
        """Whether the effect of the defaults depends on no id and no time of a row."""
        opts = self._defaults.get("opts")
        given = {} if opts is None else opts_object(opts)
        unusual = {EXPIRE_AFTER_MS, EXPIRE_AT, SPREAD_MS}
        return not (
            unusual & {*self._defaults, *given}
            or {*OWN, self._dialect.deduplication_option} & {*given}
            or "timestamp" in self._defaults
            or not isinstance(self._defaults.get("delay", 0), int)
        )

    def encode_rows(
        self, names: Sequence[str], rows: Iterable[Sequence[Any]], numbers: Sequence[int | str]
    ) -> list[_EncodedRow]:
        """Encodes rows, of which None is not given. Errors name the number of the row."""
        encoded = []
        for position, values in enumerate(rows):
            row = {n: v for n, v in zip(names, values, strict=True) if v is not None}
            try:
                encoded.append(self.encode(row, numbers[position]))
            except SparkBullError as error:
                raise type(error)(f"row {numbers[position]}: {error}") from None
        return encoded

    def encode(self, row: Mapping[str, Any], number: int | str = 0) -> _EncodedRow:
        """Encodes a row. number: its delay by `spreadMs` is computed from it."""
        merged = self._merged(row)
        expiry, spread = take_expiry(merged), take_spread(merged)
        job_id, delay, run_at, timestamp = (merged.get(name) for name in ("jobId", "delay", "runAt", "timestamp"))
        if job_id is not None:
            job_id = str(job_id)
            self._dialect.check_job_id(job_id)
        if timestamp is not None:
            _check_ms("timestamp", timestamp)
        if delay is not None or run_at is not None:
            _check_ms("delay", delay)
            _check_ms("runAt", run_at)
            check_eta(run_at, delay, timestamp)
        if expiry != (None, None):
            check_start(expiry, (delay or 0) + spread, run_at and run_at + spread, timestamp)
        if spread:
            part = delay_within(spread, self._seed, number)
            if run_at is None:
                delay = merged["delay"] = (delay or 0) + part
            else:
                run_at += part
            check_eta(run_at, delay, timestamp)
        deduplication_id = None
        if DEDUPLICATION in merged or self._dialect.deduplication_option in merged:
            deduplication = self._deduplications.of(merged)
            if deduplication is not None:
                deduplication_id, merged[DEDUPLICATION] = deduplication
                given = {EXPIRE_AFTER_MS: expiry.after, EXPIRE_AT: expiry.at}
                once = merged.get(DELIVERY) == AT_MOST_ONCE
                check_not_stored({**given, DELIVERY: once}, deduplication.rule.storing)
        parent = take_parent(merged) if PARENT in merged else None
        if parent is not None:
            # Children of different parents share their options.
            merged[PARENT] = True
        prepared = self._shared(merged)
        return _EncodedRow(prepared, job_id, delay, run_at, timestamp, deduplication_id, parent, expiry)

    def _merged(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Defaults, then the row, then its `opts`."""
        merged = {**self._defaults, **row}
        for one, other in _ALTERNATIVES:
            if one in row and other not in row:
                merged.pop(other, None)
            elif other in row and one not in row:
                merged.pop(one, None)
        merged.pop("name", None)
        merged.pop(SPREAD_SEED, None)
        for source in (self._defaults, row):
            opts = source.get("opts")
            if opts is not None:
                merged.update(opts_object(opts))
        merged.pop("opts", None)
        if merged.get("delay") is not None and merged.get("runAt") is not None:
            raise OptionError("expected one of `delay` and `runAt`, got both: leave one out")
        return merged

    def _shared(self, merged: dict[str, Any]) -> Prepared:
        options = {n: _plain(v) for n, v in merged.items() if v is not None}
        if options.pop("runAt", None) is not None:
            options["delay"] = 0
        for name in ("delay", "timestamp", "jobId"):
            if name in options:
                options[name] = 0
        key = tuple((n, type(v), v if v.__hash__ else json_text(n, v)) for n, v in options.items())
        if key not in self._prepared:
            self._prepared[key] = self._dialect.prepare(options)
        return self._prepared[key]


def _plain(value: Any) -> Any:
    """The value, with numbers that JSON can hold for DECIMALs (which 0.5 is in SQL)."""
    if isinstance(value, Mapping):
        return {name: _plain(member) for name, member in value.items()}
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value


def _check_names(names: Sequence[str], numbers: Sequence[int | str]) -> None:
    """Raises OptionError for a name that can't be sent."""
    if "".join(names).isascii():
        return
    for name, number in zip(names, numbers, strict=False):
        try:
            encodable("name", name)
        except OptionError as error:
            raise OptionError(f"row {number}: {error}") from None


def check_data(texts: Sequence[Any], numbers: Sequence[int | str]) -> None:
    """Raises OptionError, with its number, for a row without a payload."""
    for position, text in enumerate(texts):
        if text is None:
            raise OptionError(
                f"row {numbers[position]}: expected `data` to be JSON, got NULL; filter such rows "
                "out, or use coalesce(data, '{}')"
            )


def _data(dialect: Dialect, texts: Sequence[Any], numbers: Sequence[int | str]) -> list[str]:
    check_data(texts, numbers)
    replaced = dialect.replaced_data
    if replaced:
        return ["{}" if text in replaced else text for text in texts]
    return list(texts)


def _check_size(data: list[str], encoded: _Encoded, numbers: Sequence[int | str]) -> None:
    """Raises OptionError for a payload over its job's `sizeLimit`."""
    if not any(row.prepared.size_limit for row in encoded.rows):
        return
    for position, text in enumerate(data):
        limit = encoded.row(position).prepared.size_limit
        if limit and len(text.encode()) > limit:
            raise OptionError(
                f"row {numbers[position]}: expected `data` within `sizeLimit` of {limit:,} bytes, "
                f"got {len(text.encode()):,}"
            )


def _check_ms(name: str, value: object) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or abs(value) > _MOST_MS):
        raise expected(name, "ms", value)


def rows_of(jobs: Sequence[NewJob], first_row: int = 0) -> dict[str, list[Any]]:
    """The jobs as rows for `encode`, without columns that no job gives.

    first_row: number of the first job, for errors. Raises OptionError for what is no NewJob, and for a name or an id of
    a wrong type.
    """
    for number, job in enumerate(jobs, first_row):
        if not isinstance(job, NewJob):
            raise OptionError(f"row {number}: expected a NewJob, as in NewJob(payload), got: {type(job).__name__}")
        if job.name is not None and not isinstance(job.name, str):
            raise OptionError(
                f"row {number}: expected `name` to be a text, got: {job.name!r}; the payload is the first argument, as "
                'in NewJob({"to": "ada"}, "mail")'
            )
        job_id: object = job.job_id
        if isinstance(job_id, bool) or not (job_id is None or isinstance(job_id, (str, int))):
            raise OptionError(f"row {number}: expected `job_id` to be a text, got: {job_id!r}")
    rows: dict[str, list[Any]] = {name: list(map(attrgetter(attribute), jobs)) for name, attribute in _FIELDS.items()}
    rows["data"] = list(map(data_text, rows["data"]))
    rows["opts"] = [opts or None for opts in rows["opts"]]
    return {n: v for n, v in rows.items() if n == "data" or any(x is not None for x in v)}


def data_text(data: Any) -> str:
    """A payload as JSON text. Raises OptionError for one that JSON can't hold."""
    return json_text("data", data)
