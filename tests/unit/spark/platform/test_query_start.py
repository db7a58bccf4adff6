"""Queries whose source connects too late are restarted; other errors are left to the caller."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from spark_bull.spark.platform.query_start import LATE, MAX_ATTEMPTS, UNANSWERED, start_query

INITIALIZING = {"message": "Initializing sources"}
#: A query shows this for a moment before it counts as ended.
STOPPED = {"message": "Stopped"}


@dataclass
class Query:
    """The attributes of a query that `start_query` reads: it shows `states` in turn, and ends with `error`."""

    error: str | None = None
    states: list[dict[str, Any]] = field(default_factory=lambda: [INITIALIZING, INITIALIZING, {"message": "Waiting"}])
    name: str = "q"

    @property
    def isActive(self) -> bool:
        return self.error is None or len(self.states) > 1

    @property
    def status(self) -> dict[str, Any]:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def exception(self) -> str | None:
        return self.error


def test_a_query_has_started_when_its_sources_run() -> None:
    query: Any = Query()
    assert start_query(lambda: query) is query
    assert query.status == {"message": "Waiting"}


def test_a_query_whose_source_connected_too_late_is_restarted() -> None:
    queries: list[Any] = [Query(f"[UNKNOWN] {LATE}."), Query(f"{LATE}.", [INITIALIZING, *[STOPPED] * 3])]
    queries += [Query(f"[{UNANSWERED}] timed out"), Query()]
    left = iter(queries)
    assert start_query(lambda: next(left)) is queries[-1]


@pytest.mark.parametrize(("error", "starts"), [("no such column", 1), (LATE, MAX_ATTEMPTS)])
def test_a_query_that_keeps_failing_is_returned(error: str, starts: int) -> None:
    started: list[Any] = []

    def start() -> Any:
        started.append(Query(error))
        return started[-1]

    assert start_query(start) is started[-1]
    assert len(started) == starts
