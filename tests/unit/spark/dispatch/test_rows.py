"""The columns of a DataFrame become properties of jobs by name and type; wrong columns are errors."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, NullType, StructType

from spark_bull.core.dialects.encode.codec import NAMES
from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.errors import DialectError, OptionError
from spark_bull.core.options.parse import parse_options
from spark_bull.core.options.table import WriteOptions
from spark_bull.spark.dispatch import rows as rows_module
from spark_bull.spark.dispatch.rows import RowPlan, plan_rows
from spark_bull.spark.platform.arrow import to_arrow_schema

STRING, INT, LONG, DOUBLE = types.StringType(), types.IntegerType(), types.LongType(), types.DoubleType()
BOOLEAN, BINARY, INTERVAL = types.BooleanType(), types.BinaryType(), types.DayTimeIntervalType()
TIMESTAMP, NTZ, DATE = types.TimestampType(), types.TimestampNTZType(), types.DateType()


def struct(**columns: DataType) -> StructType:
    schema = StructType()
    for name, kind in columns.items():
        schema = schema.add(name, kind)
    return schema


def plan(schema: StructType, **options: str) -> RowPlan:
    return plan_rows(schema, parse_options({"queue": "q", **options}, WriteOptions))


def read(schema: StructType, values: list[tuple[Any, ...]], **options: str) -> dict[str, list[Any]]:
    arrow = to_arrow_schema(schema)
    arrays = [
        pa.array(list(column), field.type) for column, field in zip(zip(*values, strict=True), arrow, strict=True)
    ]
    return plan(schema, **options).rows(pa.RecordBatch.from_arrays(arrays, schema=arrow), range(len(arrays[0])))


# what is refused


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("data", [INT, BINARY, TIMESTAMP, BOOLEAN, NullType()]),
        ("name", [INT, BINARY]),
        ("jobId", [DOUBLE, DecimalType(10, 0), BINARY]),
        ("delay", [STRING, DOUBLE, TIMESTAMP, INTERVAL]),
        ("runAt", [LONG, DATE, STRING, NTZ]),
        ("timestamp", [STRING, DATE, NTZ]),
        ("priority", [DOUBLE, BOOLEAN]),
        ("attempts", [STRING, DOUBLE]),
        ("backoff", [STRING, DOUBLE, MapType(STRING, INT)]),
        ("lifo", [STRING, INT]),
        ("removeOnComplete", [STRING, DOUBLE]),
        ("removeOnFail", [STRING, ArrayType(INT)]),
        ("deduplication", [INT, struct(ttl=LONG), struct(id=STRING, ttl=STRING), struct(id=STRING, once=BOOLEAN)]),
        ("parent", [STRING, struct(id=STRING), struct(queue=STRING, id=STRING, key=STRING), struct(queue=INT, id=INT)]),
        ("opts", [INT, ArrayType(STRING)]),
        ("queue", [INT, BINARY]),
    ],
)
def test_a_column_of_the_wrong_type_is_refused(name: str, kinds: list[DataType]) -> None:
    for kind in kinds:
        with pytest.raises(OptionError) as error:
            plan(struct(**({"data": STRING} | {name: kind})))
        assert f"expected column `{name}` to be " in str(error.value)
        assert f"got: {kind.simpleString().upper()}; cast it" in str(error.value)


def test_every_property_can_be_a_column() -> None:
    assert set(rows_module._COLUMNS) == {*NAMES, "queue", "children", "dependsOn"}


PERSON = struct(to=STRING, delay=INT)


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (struct(data=STRING, prio=INT), {}, "unknown column `prio` (did you mean `priority`?)"),
        (struct(data=STRING, DATA=STRING), {}, "expected one column `data`, got two"),
        (struct(data=INTERVAL), {}, "expected column `data` to be STRUCT, MAP, ARRAY, VARIANT, or STRING holding JSON"),
        (struct(data=struct(a=INTERVAL)), {}, "expected column `data` to be of types that JSON can hold"),
        (StructType(), {}, "expected a column `data`, or columns that form the payload, got only: none"),
        (struct(data=MapType(STRING, NullType())), {}, "cast intervals to a number or a string, and VOID to a type"),
        (struct(data=ArrayType(types.CalendarIntervalType())), {}, "types that Arrow supports"),
        (struct(to=STRING), {"uniqueBy": "too"}, "got no column `too` (did you mean `to`?), only: `to`"),
        (struct(a=INT, b=INTERVAL, data=STRING), {"uniqueBy": "a,b"}, "column `b` to be of types that JSON can hold"),
        (struct(data=STRING, deduplication=STRING), {"uniqueBy": "data"}, "one of `uniqueBy` and a column `dedup"),
        (struct(a=INT), {"uniqueBy": "a", "deduplication": "x"}, "one of `uniqueBy` and an id in `deduplication`"),
        (struct(a=INT), {"deduplication": '{"ttl": 5}'}, "ids, as option `deduplication` is set"),
        (struct(order=STRING), {"jobIdColumn": "oder"}, "columns in `jobIdColumn`, got no column `oder` (did you mean"),
        (struct(order=DOUBLE), {"jobIdColumn": "order"}, "expected column `order` to be STRING, or an integer"),
        (struct(data=STRING, order=STRING, jobId=STRING), {"jobIdColumn": "order"}, "and a column `jobId`, got both"),
        (PERSON, {"jobColumns": "dely"}, "got: 'dely' (did you mean `delay`?)"),
        (PERSON, {"jobColumns": "to"}, "`jobColumns` to list some of the settings name, jobId, "),
        (PERSON, {"jobColumns": "runAt, delay"}, "got no column `runAt`, only: `to`, `delay`"),
        (struct(a=INT, delay=STRING), {"jobColumns": "delay"}, "column `delay` to be an integer (ms), got: STRING"),
        (struct(name=STRING, priority=INT), {"jobColumns": "name,priority"}, "got only: `name`, `priority`"),
        (struct(data=STRING, delay=INT), {"jobColumns": "delay"}, "is for a DataFrame without a column `data`"),
    ],
    ids=lambda value: value.simpleString() if isinstance(value, StructType) else "",
)
def test_invalid_columns_are_refused(schema: StructType, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError) as error:
        plan(schema, **options)
    assert message in str(error.value)


# deduplication ids


def test_the_values_of_unique_columns_are_the_deduplication_id() -> None:
    schema = struct(to=STRING, template=INT, score=DOUBLE)
    rows = read(schema, [("ada", 1, 0.5), ('"a,b"', None, 2.0), (None, None, None)], uniqueBy="TO, template")
    assert rows["deduplication"] == ['["ada",1]', '["\\"a,b\\"",null]', "[null,null]"]
    assert rows["data"][0] == '{"to":"ada","template":1,"score":0.5}'
    nested = read(struct(who=struct(a=INT, b=ArrayType(STRING))), [({"a": 1, "b": ["x"]},)], uniqueBy="who")
    assert nested["deduplication"] == ['[{"a":1,"b":["x"]}]']


def test_unique_columns_can_be_beside_data_and_settings() -> None:
    rows = read(struct(data=STRING, name=STRING, customer=LONG), [("{}", "send", 7)], uniqueBy="name,customer")
    assert rows == {"data": ["{}"], "name": ["send"], "deduplication": ['["send",7]']}


@pytest.mark.parametrize(
    ("schema", "options"), [(struct(a=INT), {"uniqueBy": "a"}), (struct(data=STRING, deduplication=STRING), {})]
)
def test_a_dialect_without_deduplication_ids_refuses_the_column(schema: StructType, options: dict[str, str]) -> None:
    with pytest.raises(DialectError, match="bull-1 has no deduplication ids"):
        plan(schema, **options).check_dialect(DIALECTS["bull-1"])
    plan(schema, **options).check_dialect(DIALECTS["bull"])


def test_the_column_with_the_ids_of_jobs_stays_in_the_payload() -> None:
    rows = read(struct(order=STRING, n=INT), [("a-1", 1), (None, 2)], jobIdColumn="ORDER")
    assert rows == {"jobId": ["a-1", None], "data": ['{"order":"a-1","n":1}', '{"n":2}']}
    assert read(struct(jobId=LONG), [(7,)], jobIdColumn="jobId") == {"jobId": [7], "data": ['{"jobId":7}']}
    beside = read(struct(data=STRING, order=STRING, name=STRING), [("{}", "a-1", "send")], jobIdColumn="order")
    assert beside == {"jobId": ["a-1"], "data": ["{}"], "name": ["send"]}


def test_integers_in_the_column_with_ids_are_refused_for_bullmq() -> None:
    rows = plan(struct(order=LONG), jobIdColumn="order")
    rows.check_dialect(DIALECTS["bull"])
    with pytest.raises(OptionError, match="expected column `order` to be STRING"):
        rows.check_dialect(DIALECTS["bullmq"])


def test_the_error_about_a_missing_queue_mentions_catalog_tables() -> None:
    with pytest.raises(OptionError, match=r"expected an option `queue`, or a column `queue`.*TEMPORARY VIEW"):
        plan_rows(struct(data=STRING), parse_options({}, WriteOptions))


def test_a_column_queue_is_used_if_job_columns_lists_it() -> None:
    schema = struct(n=INT, queue=STRING)
    with pytest.raises(OptionError, match=r"without a column `data` the column `queue` is part of the payload"):
        plan_rows(schema, parse_options({}, WriteOptions))
    named = plan_rows(schema, parse_options({"jobColumns": "queue"}, WriteOptions))
    assert (named.columns, named.payload) == ({"queue": 1}, (0,))
    # The option overrides the column.
    beside = struct(data=STRING, queue=STRING)
    assert "queue" not in plan(beside).columns
    assert "queue" in plan_rows(beside, parse_options({}, WriteOptions)).columns
    overruled = plan(schema, jobColumns="queue")
    assert (overruled.columns, overruled.payload) == ({}, (0,))


# what is read


def test_without_data_the_whole_row_is_the_payload() -> None:
    schema = struct(name=STRING, priority=INT, user=struct(id=INT), queue=STRING, tags=ArrayType(STRING))
    rows = read(schema, [("Ada", 5, {"id": 1}, "left", ["a"]), (None,) * 5, (None, 1, None, None, [])])
    whole = '{"name":"Ada","priority":5,"user":{"id":1},"queue":"left","tags":["a"]}'
    assert rows == {"data": [whole, "{}", '{"priority":1,"tags":[]}']}


def test_a_column_is_payload_unless_job_columns_lists_it() -> None:
    texts = dict.fromkeys(("opts", "name", "deduplication", "delivery"), STRING)
    kinds = {"runAt": TIMESTAMP, "expireAt": TIMESTAMP, "timestamp": LONG, "lifo": BOOLEAN, **texts}
    kinds["parent"] = struct(queue=STRING, id=STRING)
    for name in {*NAMES} - {"data"}:
        schema = struct(**{"n": INT, name: kinds.get(name, INT)})
        whole, named = plan(schema), plan(schema, jobColumns=name.upper())
        assert (whole.columns, whole.payload) == ({}, (0, 1))
        assert (named.columns, named.payload) == ({name: 1}, (0,))


def test_columns_in_job_columns_are_settings_and_not_payload() -> None:
    schema = struct(name=STRING, Priority=INT, delay=INT, note=STRING)
    rows = read(schema, [("Ada", 5, 10, "x"), (None, None, None, None)], jobColumns=" priority, DELAY,delay")
    assert rows == {"priority": [5, None], "delay": [10, None], "data": ['{"name":"Ada","note":"x"}', "{}"]}


def test_payload_columns_named_like_settings_are_reported_once(own_log: pytest.LogCaptureFixture) -> None:
    rows_module._warn_of_settings.cache_clear()
    schema = struct(Name=STRING, note=STRING, delay=INT)
    for _ in range(3):
        plan(schema)
        plan(struct(note=STRING))
        plan(schema, jobColumns="delay")
        plan(schema, jobColumns="")
        plan(struct(data=STRING, delay=INT))
    (said,) = own_log.messages
    assert "including the columns `Name`, `delay`: list those that are settings" in said


@pytest.mark.parametrize(
    ("moment", "ms"),
    [
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, timezone.utc), -1),
        (datetime(2038, 1, 1, 0, 0, 0, 1999, timezone.utc), 2_145_916_800_001),
    ],
)
def test_times_become_whole_milliseconds(moment: datetime, ms: int) -> None:
    schema = struct(data=STRING, runAt=TIMESTAMP, timestamp=TIMESTAMP)
    rows = read(schema, [("{}", moment, moment), ("{}", None, None)])
    assert (rows["runAt"], rows["timestamp"]) == ([ms, None], [ms, None])
    assert type(rows["runAt"][0]) is int


def test_null_fields_of_option_structs_are_dropped() -> None:
    backoff, keep = struct(type=STRING, delay=INT, jitter=DOUBLE), struct(age=INT, count=INT)
    rule = struct(id=STRING, ttl=LONG, replace=BOOLEAN)
    schema = struct(data=STRING, backoff=backoff, removeOnFail=keep, opts=struct(kl=INT, x=STRING), deduplication=rule)
    first = ("{}", {"type": "fixed", "delay": 5}, {"count": 3}, {"kl": 5}, {"id": "a", "replace": True})
    rows = read(schema, [first, (' {"a":  1.50} ', *[None] * 4)])
    assert rows["data"] == ["{}", ' {"a":  1.50} ']
    assert rows["opts"] == ['{"kl":5}', None]
    assert rows["backoff"] == [{"type": "fixed", "delay": 5}, None]
    assert rows["removeOnFail"] == [{"count": 3}, None]
    assert rows["deduplication"] == [{"id": "a", "replace": True}, None]


def test_a_large_batch_is_cut_into_slices_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "SLICE_BYTES", 1000)
    batch = pa.RecordBatch.from_pydict({"data": [f'"{n:0100}"' for n in range(50)]})
    slices = list(plan(struct(data=STRING)).slices(batch))
    assert len(slices) > 4
    assert pa.Table.from_batches(slices).to_pydict() == batch.to_pydict()
    assert list(plan(struct(data=STRING)).slices(batch.slice(0, 0))) == []
