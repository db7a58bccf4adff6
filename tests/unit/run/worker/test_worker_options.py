"""Arguments of a Worker: each has an effect or is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import pandas_udf
from pyspark.sql.types import LongType

from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.errors import DialectError, OptionError
from spark_bull.core.model.limits import SlotRange
from spark_bull.run.worker.slots_plan import worked_queues
from spark_bull.run.worker.worker_options import check_setup, checked_env, worker_options
from spark_bull.spark.work.task_slots import task_tries
from spark_bull.spark.work.worker import largest_chunk


def of_a_job(job: Any) -> None: ...


def of_frames(jobs: DataFrame) -> DataFrame:
    return jobs


@pandas_udf(LongType())
def udf(n: pd.Series) -> pd.Series:
    return n


@pytest.mark.parametrize(
    ("processor", "arguments", "jobs"),
    [
        ({"*": of_a_job}, {}, 100),
        (of_a_job, {"chunk_size": 7}, 7),
        (of_frames, {}, 10_000),
        (udf, {}, 200),
        (udf, {"min_chunk": 500}, 500),
        (udf, {"min_chunk": 500, "chunk_size": 1_000}, 1_000),
    ],
)
def test_a_chunk_of_a_udf_is_larger_by_default(
    processor: Callable[..., Any] | dict[str, Callable[..., Any]], arguments: dict[str, int], jobs: int
) -> None:
    assert largest_chunk(worker_options(arguments, processor), processor) == jobs


def test_slots_may_be_a_range() -> None:
    for slots in ((1, 40), [1, 40], "1-40", "[1, 40]"):
        options = worker_options({"slots": slots, "target_wait_s": "0.5"}, of_a_job)
        assert (options.slots, options.target_wait_s) == (SlotRange(1, 40), 0.5)
    assert worker_options({"slots": (0, 1)}, of_a_job).target_wait_s == 30
    assert type(worker_options({"slots": "8"}, of_a_job).slots) is int


A_RANGE = r"`slots` to be a positive integer, or the least and the largest number, such as \(1, 40\)"


@pytest.mark.parametrize(
    ("processor", "arguments", "message"),
    [
        (udf, {"chunk_size": 2_001}, "`chunk_size` to be an integer from 1 to 2,000, unless the processor is"),
        ({"a": of_frames, "*": of_a_job}, {"chunk_size": 2_001}, "`chunk_size` to be an integer from 1 to 2,000"),
        (of_frames, {"chunk_size": 5, "min_chunk": 6}, "`min_chunk` to be at most `chunk_size`"),
        (of_a_job, {"promoter": False, "check_ms": 2}, "`check_ms`"),
        (of_frames, {"extend_timeout_on_progress": True}, "`extend_timeout_on_progress`"),
        (udf, {"extend_timeout_on_progress": True}, "`extend_timeout_on_progress` has no effect"),
        *((of_a_job, {"slots": slots}, A_RANGE) for slots in ((4, 1), (0, 0), "1-", (1, 2, 3), 1.5)),
        (of_a_job, {"slots": (1, 4), "target_wait_s": 0}, "`target_wait_s` to be a number > 0"),
        (of_a_job, {"slots": 4, "target_wait_s": 30}, r"has no effect without a range of `slots`, such as \(1, 40\)"),
        (of_a_job, {"retryMs": 1}, r"unknown option `retryMs` \(did you mean `retry_ms`\?\)"),
        (of_a_job, {"timeout": 1}, r"\(did you mean `timeout_ms`\?\)"),
        (of_a_job, {"metrics": 1}, r"\(did you mean `metrics_minutes`\?\)"),
    ],
)
def test_a_wrong_argument_or_one_without_an_effect_is_refused(
    processor: Callable[..., Any] | dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        worker_options(arguments, processor)


@pytest.mark.parametrize(
    ("name", "value", "lacking", "said"),
    [
        ("metrics_minutes", 5, ["bull-1"], "workers of bull-1 keep no metrics; leave it out"),
        ("max_started", 2, ["bull-1", "bull"], "does not count starts; leave it out"),
    ],
)
def test_an_argument_that_the_dialect_does_not_support_is_refused(
    name: str, value: int, lacking: list[str], said: str
) -> None:
    options = worker_options({name: value}, of_a_job)
    for dialect in DIALECTS.values():
        if dialect.name not in lacking:
            dialect.check_options(options)
            continue
        with pytest.raises(DialectError, match=f"expected no `{name}`: .*{said}"):
            dialect.check_options(options)
    DIALECTS["bull-1"].check_options(worker_options({"metrics_minutes": 0}, of_a_job))


def test_a_setup_is_for_functions_of_a_job() -> None:
    check_setup(dict, of_a_job)
    check_setup(dict, {"send": of_a_job})
    for processor in (of_frames, udf):
        check_setup(None, processor)
        with pytest.raises(OptionError, match="`setup` has no effect on UDFs and functions of DataFrames"):
            check_setup(dict, processor)


def test_a_setup_is_a_coroutine_function_only_if_a_processor_is() -> None:
    async def coroutine(job: object) -> None: ...

    async def setup() -> None: ...

    check_setup(setup, coroutine)
    check_setup(setup, {"send": of_a_job, "*": coroutine})
    for processor in (of_a_job, {"send": of_a_job}):
        with pytest.raises(OptionError, match="expected `setup` to be a plain function"):
            check_setup(setup, processor)
    with pytest.raises(OptionError, match="expected `setup` to be a function without parameters, got: 5"):
        check_setup(5, of_a_job)


def test_environment_variables_are_names_and_texts_and_not_for_functions_of_dataframes() -> None:
    wrong: list[Any] = [["A"], {"": "1"}, {"A=B": "1"}, {7: "1"}, {"A": 1}, {"TOKEN": "secret\0"}, {"A": None}]
    for env in wrong:
        with pytest.raises(OptionError, match="`env") as raised:
            checked_env(env)
        assert "secret" not in str(raised.value)
    assert checked_env({"A": "1"}) == {"A": "1"}
    with pytest.raises(OptionError, match=r"a function of DataFrames runs on the driver.*set spark\.executorEnv"):
        checked_env({"A": "1"}, of_frames)


def test_how_often_spark_tries_a_task_depends_on_the_master() -> None:
    tries = {"local": 1, "local[*]": 1, "local[2]": 1, "local[2,3]": 3, "local-cluster[2,2,1024]": 4, "": 4}
    tries["spark://host:7077"] = 4
    assert {master: task_tries(master, "4") for master in tries} == tries


def test_a_list_as_queue_is_an_error_that_names_the_argument_for_it() -> None:
    with pytest.raises(
        OptionError, match=r"expected `queue` to be the name of a queue, got: \['a', 'b'\]; .* `queues`"
    ):
        worked_queues(["a", "b"], None, None)
