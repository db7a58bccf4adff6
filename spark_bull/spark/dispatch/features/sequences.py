"""The option `sequenceBy`: jobs with the same key run one after the other, in the order of the rows.

The driver adds the rows of all partitions in order, with exactly-once delivery, so that no shuffle is needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from spark_bull.core.dialects.deduplication import DEDUPLICATION
from spark_bull.core.dialects.encode.chunks import EncodedJobs, collapsed, listed
from spark_bull.core.dialects.terms import AT_LEAST_ONCE, PARENT, failure_flag, failure_option
from spark_bull.core.errors import OptionError
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.spark.dispatch.feature import TaskRows, WriteFeature, WriteRequest
from spark_bull.spark.dispatch.rows import CHILDREN, SEQUENCE

#: What the members of a sequence can't have, and why.
_REFUSED: Final = {
    PARENT: "the parent of a job is the next one of its sequence",
    DEDUPLICATION: "a job with a parent can't be deduplicated",
    CHILDREN: "a job of a sequence waits for the one before it only",
}


@dataclass(frozen=True)
class Sequences(WriteFeature):
    """on_failure: the option `onFailure`."""

    on_failure: str

    @classmethod
    def planned(cls, request: WriteRequest) -> Sequences | None:
        options, rows = request.options, request.rows
        if not rows.sequence_by:
            return None
        if options.delivery == AT_LEAST_ONCE:
            raise OptionError(
                f"expected `delivery` to be exactly-once with `sequenceBy`, got {AT_LEAST_ONCE}: tasks that add jobs "
                "at the same time, or again, do not keep the order of the rows"
            )
        for name, reason in _REFUSED.items():
            if name in rows.columns or options.value(name) is not None:
                raise OptionError(f"expected one of `sequenceBy` and `{name}`, got both: {reason}")
        if rows.unique_by:
            raise OptionError(f"expected one of `sequenceBy` and `uniqueBy`, got both: {_REFUSED[DEDUPLICATION]}")
        return cls(options.on_failure or "ignore")

    def check(self, handle: QueueHandle) -> None:
        handle.dialect.require("flows", "`sequenceBy`")

    def encode(self, jobs: EncodedJobs, rows: TaskRows) -> EncodedJobs:
        for name, column in ((PARENT, jobs.parent_id), (DEDUPLICATION, jobs.deduplication_id)):
            for number, given in zip(rows.numbers, listed(column, jobs.n), strict=True):
                if given is not None:
                    raise OptionError(f"row {number}: expected no `{name}` with `sequenceBy`: {_REFUSED[name]}")
        for number, policy in zip(rows.numbers, listed(jobs.on_failure, jobs.n), strict=True):
            if policy is not None:
                raise OptionError(
                    f"row {number}: expected no failure policy in `opts` with `sequenceBy`, as `onFailure` says what "
                    "becomes of the next job: leave it out"
                )
        flag = failure_flag(failure_option("onFailure", self.on_failure))
        return replace(jobs, sequence=collapsed(rows.values[SEQUENCE]), sequence_failure=flag)
