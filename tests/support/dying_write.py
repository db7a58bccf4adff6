"""A process that writes or changes jobs, and kills itself before or after one of its calls of scripts.

With the option `mode` = manage, it changes the jobs `key-<number>`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from itertools import count
from typing import Any

from pyspark.sql.types import IntegerType, StringType, StructType

from spark_bull.store.connection import Command, Connection
from tests.support.forked_process import exit_code
from tests.support.sink import ManageSink, Sink

ROWS = StructType().add("n", IntegerType()).add("key", StringType())
CHANGES = StructType().add("id", StringType()).add("data", StringType())
TASKS = 2
KEYS = 3


def rows_of(jobs: int) -> list[list[dict[str, Any]]]:
    """The rows of each task."""
    return [[{"n": n, "key": f"key-{n % KEYS}"} for n in range(first, jobs, TASKS)] for first in range(TASKS)]


def changes_of(jobs: int) -> list[list[dict[str, Any]]]:
    """The changes of each task."""
    return [[{"id": f"key-{n}", "data": f'{{"n": {n}}}'} for n in range(first, jobs, TASKS)] for first in range(TASKS)]


def write(options: dict[str, str], jobs: int) -> None:
    """Writes or changes the jobs in two tasks."""
    is_managed = options.get("mode") == "manage"
    sink = ManageSink(options, CHANGES) if is_managed else Sink(options, ROWS)
    for rows in changes_of(jobs) if is_managed else rows_of(jobs):
        sink.task(rows)
    sink.commit()


def run(options: dict[str, str], jobs: int, call: int, when: str) -> int:
    """Writes or changes the jobs in a separate process; returns its exit code."""
    return exit_code(_run, options, jobs, call, when)


def _run(options: dict[str, str], jobs: int, call: int, when: str) -> None:
    die_at(call, when)
    write(options, jobs)


def die_at(number: int, when: str) -> None:
    """Lets the process die at its call of a script with this number; those of a pipeline count one by one."""
    script, pipeline, calls = Connection.script, Connection.pipeline, count(1)

    def dying(self: Connection, *call: Any) -> Any:
        is_last = next(calls) == number
        if is_last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        reply = script(self, *call)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return reply

    def dying_in_a_pipeline(self: Connection, commands: Sequence[Command], *what: str) -> list[Any]:
        for at, command in enumerate(commands):
            if command[0] == "EVAL" and next(calls) == number:
                pipeline(self, commands[: at + (when == "after")])
                os.kill(os.getpid(), signal.SIGKILL)
        return pipeline(self, commands, *what)

    Connection.script = dying  # type: ignore[method-assign]
    Connection.pipeline = dying_in_a_pipeline  # type: ignore[method-assign]
