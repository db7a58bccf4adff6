"""Rows of mode=settle that only complete jobs are read by columns; the tokens of claims."""

from __future__ import annotations

from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType, TimestampType

from spark_bull.core.errors import OptionError
from spark_bull.core.options.parse import as_texts, parse_options
from spark_bull.core.options.table import SettleOptions
from spark_bull.core.queue.work.claim_ledger import new_lock_token
from spark_bull.run.job.outcomes import Outcome
from spark_bull.spark.platform.arrow import to_arrow_schema
from spark_bull.spark.schemas import check_claimed_columns
from spark_bull.spark.work.claim_batch import SettleToken, SettleTokens, read_settle_token
from spark_bull.spark.work.settle.plan import SettlePlan, plan_columns
from spark_bull.spark.work.settle.rows import all_completed, by_queue_and_reader

SCHEMA = StructType(
    [StructField(name, StringType()) for name in ("queue", "id", "token", "returnvalue", "error", "stacktrace")]
    + [StructField("unrecoverable", BooleanType()), StructField("delay", LongType())]
)
ONE, TWO, OTHER = f"a#{'1' * 32}", f"a#{'2' * 32}", f"b#{'3' * 32}"
USUAL = [
    {"queue": "q", "id": "1", "token": f"{ONE}#plain", "returnvalue": '{"a": 1}'},
    {"queue": "q", "id": "2", "token": f"{ONE}#plain", "returnvalue": None, "stacktrace": "old", "unrecoverable": True},
    {"queue": "q", "id": "3", "token": f"{TWO}#plain", "returnvalue": "2"},
]


def plan_of(queue: str | None) -> SettlePlan:
    return plan_columns(parse_options(as_texts({"queue": queue}), SettleOptions), SCHEMA)


def test_each_outcome_has_its_own_rule_for_what_is_kept() -> None:
    rules = {"removeOnComplete": "1", "removeOnFail": "2"}
    policy = plan_columns(parse_options({"queue": "q", **rules}, SettleOptions), SCHEMA).policy
    assert (policy.keep_completed, policy.keep_failed) == ({"count": 1}, {"count": 2})


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(SCHEMA))


@pytest.mark.parametrize("queue", [None, "q"])
def test_rows_that_complete_jobs_are_the_same_by_columns_and_one_by_one(queue: str | None) -> None:
    plan, batch = plan_of(queue), batch_of(USUAL)
    found = all_completed(plan, batch)
    ((key, rows),) = by_queue_and_reader(plan, batch).items()
    assert (found.queue, found.reader) == key == ("q", "a")
    assert found.rows() == [row._replace(stack=None, unrecoverable=False) for row in rows]


@pytest.mark.parametrize(
    "another",
    [
        {"error": "no"},
        {"returnvalue": "{"},
        {"token": f"{OTHER}#plain"},
        {"token": "another"},
        {"queue": "r"},
        {"id": "1"},
        {"id": None},
    ],
    ids=str,
)
def test_rows_of_other_outcomes_or_claims_are_read_one_by_one(another: dict[str, Any]) -> None:
    assert all_completed(plan_of(None), batch_of([*USUAL, USUAL[0] | {"id": "4"} | another])) is None


def test_a_job_is_delayed_until_the_second_of_two_equal_hours() -> None:
    moment = 1_730_615_400_123  # Half past one, again, in New York.
    fields = [StructField(name, StringType()) for name in ("queue", "id", "token")]
    schema = StructType([*fields, StructField("runAt", TimestampType())])
    kind = pa.timestamp("us", "America/New_York")
    row = pa.record_batch([pa.array([text]) for text in ("q", "1", f"{ONE}#plain")], ["queue", "id", "token"])
    batch = row.append_column("runAt", pa.array([moment * 1000 + 999], pa.int64()).view(kind))
    plan = plan_columns(parse_options({}, SettleOptions), schema)
    (((found,),),) = [by_queue_and_reader(plan, batch).values()]
    assert found.postponed == Outcome("delayed until", moment)


def test_a_settle_token_is_read_as_it_was_made_and_another_text_as_the_token_of_a_lock() -> None:
    for reader, (opts, is_plain) in product(
        ("reader", "a#b", "a#plain", "a\n", ""), (("{}", True), (None, True), ('{"removeOnComplete": 3}', False))
    ):
        lock_token = new_lock_token(reader)
        assert read_settle_token(SettleTokens(lock_token).of(opts)) == SettleToken(lock_token, reader, is_plain)
    for lock_token in ("reader", "a#b", "a#plain", "5", ""):
        assert read_settle_token(lock_token) == SettleToken(lock_token, lock_token, False)


@pytest.mark.parametrize(
    "field",
    [StructField("ID", StringType()), StructField("data", StringType(), nullable=False), StructField("id", LongType())],
)
def test_columns_of_claimed_jobs_have_their_names_and_types_and_can_be_null(field: StructField) -> None:
    check_claimed_columns(StructType([StructField("id", StringType())]))
    with pytest.raises(OptionError, match=f"expected columns of claimed jobs .* got: {field.name} "):
        check_claimed_columns(StructType([field]))
