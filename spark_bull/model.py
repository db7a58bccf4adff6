"""The nouns: a job to be added, a job as read, the states, a write's record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_bull.job_json import json_or_text, opts_of, payload_of

STATES = (
    "wait",
    "active",
    "delayed",
    "prioritized",
    "paused",
    "waiting-children",
    "completed",
    "failed",
)


@dataclass(frozen=True)
class RawJson:
    """Text that already is JSON and is sent as it is."""

    text: str


@dataclass(frozen=True)
class NewJob:
    """A job to be added.

    data: anything JSON can hold, or RawJson. delay, run_at, timestamp: ms (the latter two since
    1970). backoff: ms, or a mapping with type, delay (ms) and, in BullMQ, jitter (0..1).
    remove_on_complete / remove_on_fail: bool, count, or {"age": s, "count": n}. opts: any further
    option of the Node library, merged last.
    """

    data: Any
    name: str | None = None
    job_id: str | None = None
    delay: int | None = None
    run_at: int | None = None
    priority: int | None = None
    attempts: int | None = None
    backoff: int | Mapping[str, Any] | None = None
    lifo: bool | None = None
    remove_on_complete: bool | int | Mapping[str, Any] | None = None
    remove_on_fail: bool | int | Mapping[str, Any] | None = None
    timestamp: int | None = None
    opts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """A job as read from Redis; times in ms since 1970.

    `data`, `opts`, `progress` and `returnvalue` are parsed JSON, as in a processor; `data_text` and so on are what
    stands in Redis. `state` is None for a job that is in no state's list. `run_at` is when a delayed job is due. What
    the hash doesn't have is None, or what the Node libraries take it for: no attempts made, no delay, no priority.
    """

    queue: str
    id: str
    state: str | None
    name: str | None = None
    data_text: str = "{}"
    opts_text: str = "{}"
    progress_text: str | None = None
    returnvalue_text: str | None = None
    failed_reason: str | None = None
    stacktrace: tuple[str, ...] = ()
    attempts_made: int = 0
    attempts_started: int | None = None
    stalled_counter: int = 0
    timestamp: int | None = None
    processed_on: int | None = None
    finished_on: int | None = None
    delay: int = 0
    run_at: int | None = None
    priority: int = 0
    processed_by: str | None = None
    parent_key: str | None = None
    deduplication_id: str | None = None
    repeat_job_key: str | None = None

    @property
    def data(self) -> Any:
        """The payload. Raises JobDamaged, a ValueError, when it is no JSON."""
        return payload_of(self.id, self.data_text, self.opts_text)

    @property
    def opts(self) -> dict[str, Any]:
        """The options, as the Node library stores them. Raises JobDamaged when they are no JSON object."""
        return opts_of(self.id, self.opts_text)

    @property
    def progress(self) -> Any:
        """What was reported last, None for nothing; the text when it is no JSON."""
        return json_or_text(self.progress_text)

    @property
    def returnvalue(self) -> Any:
        """What the processor returned, None for nothing; the text when it is no JSON."""
        return json_or_text(self.returnvalue_text)

    def parsed(self, name: str = "data") -> Any:
        """The same as the attribute of that name."""
        return getattr(self, name)


@dataclass(frozen=True)
class Added:
    """What became of the jobs of one call: ids in the order given."""

    ids: list[str]
    added: int
    duplicates: int


@dataclass(frozen=True)
class WriteRecord:
    """One write: the jobs it was to add, and how many of them are done. Times in ms since 1970."""

    id: str
    queue: str
    state: str
    delivery: str
    jobs: int
    done: int
    added: int
    duplicates: int
    started_on: int | None
    finished_on: int | None
    app_id: str | None = None
    version: int | None = None

    @property
    def duration_ms(self) -> int | None:
        if self.started_on is None or self.finished_on is None:
            return None
        return self.finished_on - self.started_on
