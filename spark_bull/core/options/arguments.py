"""The options that are arguments in Python: their types, and how they appear in signatures and docstrings.

A function has them as `**options: Unpack[<one of the types>]`, and is decorated, so that `help()` lists them, too.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypedDict, TypeVar

from spark_bull.core.model.jobs import Backoff, Deduplication, KeepRule, NewJob, Parent, Priority
from spark_bull.core.options.parse import shown_in
from spark_bull.core.options.parts import Option, Options, listed_texts, options_in
from spark_bull.core.options.table import QueueOptions

F = TypeVar("F", bound=Callable[..., Any])

_WIDTH: Final = 116
#: The settings of redis-py, which have no table here.
_REDIS: Final = {"redis": 'other settings of redis-py, such as {"client_name": "reports"}.'}


#: What the properties of a job mean.
JOB_TEXTS: Final = listed_texts(NewJob.__doc__, "Parameters")


class UrlArgument(TypedDict, total=False):
    """The argument of a connection that a Promoter and a Rescuer take first, also without its name."""

    url: str | None


class ServerArguments(TypedDict, total=False):
    """The other arguments of a connection."""

    shard_urls: str | Sequence[str] | None
    password: str | None
    call_timeout_ms: int | None
    retry_ms: int | None
    address_map: Mapping[str, str] | str | None
    redis: Mapping[str, str] | None
    prefix: str | None
    scan_keys: bool | None
    protocol: str | None
    bullmq_version: str | None


class ConnectionArguments(UrlArgument, ServerArguments, total=False):
    """The arguments of a connection."""


class OpeningArguments(TypedDict, total=False):
    """How payloads and results are opened that are encrypted or stored elsewhere."""

    encrypt_with: str | Sequence[str] | None
    offload_to: str | None


class PayloadArguments(OpeningArguments, total=False):
    """How payloads and results are kept."""

    offload_above: int | str | None


class CallArguments(ConnectionArguments, OpeningArguments, total=False):
    """The options of `call`."""

    events: str | None


class ServiceArguments(ServerArguments, total=False):
    """The options of a Promoter or Rescuer but `url`."""

    shards: int | str | None
    events: str | None
    check_ms: int | None
    max_stalled: int | None


class JobDefaults(TypedDict, total=False):
    """The properties of a job that have a default in a BullQueue."""

    name: str | None
    delay: int | None
    priority: Priority | None
    attempts: int | None
    backoff: Backoff | None
    lifo: bool | None
    remove_on_complete: KeepRule | None
    remove_on_fail: KeepRule | None
    deduplication: Deduplication | None
    expire_after_ms: int | None
    spread_ms: int | None
    delivery: str | None
    lock_ms: int | None
    opts: Mapping[str, Any] | None


class JobProperties(JobDefaults, total=False):
    """The properties of a job but its payload, as in NewJob."""

    run_at: int | None
    timestamp: int | None
    expire_at: int | None
    job_id: str | None
    parent: Parent | None


class QueueArguments(ConnectionArguments, PayloadArguments, JobDefaults, total=False):
    """The options of a BullQueue."""

    events: str | None
    chunk_size: int | None
    chunk_bytes: int | None
    max_length: int | None
    when_full: str | None
    replicas: int | None
    replica_timeout_ms: int | None


class LocalWorkerArguments(ConnectionArguments, PayloadArguments, total=False):
    """The options of a LocalWorker."""

    shards: int | str | None
    events: str | None
    concurrency: int | None
    chunk_size: int | None
    timeout_ms: int | None
    extend_timeout_on_progress: bool | None
    lock_ms: int | None
    worker_name: str | None
    limiter: Mapping[str, Any] | None
    group: Mapping[str, str | int] | None
    retry: Mapping[str, int] | None
    remove_on_complete: KeepRule | None
    remove_on_fail: KeepRule | None
    metrics_minutes: int | None
    max_started: int | None
    dead_letter_queue: str | None
    max_stalled: int | None
    check_ms: int | None
    promoter: bool | None
    progress: bool | None


class WorkerArguments(LocalWorkerArguments, total=False):
    """The options of a Worker."""

    slots: int | tuple[int, int] | str | None
    target_wait_s: float | None
    min_chunk: int | None
    chunk_wait_ms: int | None


def connection_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of the connection among these."""
    return {name: value for name, value in arguments.items() if name in ConnectionArguments.__annotations__}


def with_options(arguments: type, scope: type[Options]) -> Callable[[F], F]:
    """Decorates a class or function whose last parameter, `**name`, takes options of a scope of the table."""

    def text_of(row: Option) -> str:
        if scope is QueueOptions and row.attribute in JOB_TEXTS:
            return f"default for jobs that are added here: {JOB_TEXTS[row.attribute]}"
        default = row.default_text and f"; default: {row.default_text}"
        return shown_in(scope, f"{row.doc}{default}.")

    return listing(arguments, {row.attribute: text_of(row) for row in options_in(scope).values()} | _REDIS)


def listing(arguments: type, texts: Mapping[str, str]) -> Callable[[F], F]:
    """Decorates a class or function whose last parameter, `**name`, is `Unpack[arguments]`; texts: what each means.

    The parameters replace the last one in the signature, and its line in the docstring.
    """

    def listed(function: F) -> F:
        called = vars(function)["__init__"] if isinstance(function, type) else function
        signature = inspect.signature(called)
        *first, last = signature.parameters.values()
        further = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation.__forward_arg__)
            for name, annotation in arguments.__annotations__.items()
        ]
        called.__dict__["__signature__"] = signature.replace(parameters=[*first, *further])
        # None: docstrings are removed by `python -OO`.
        if function.__doc__ is not None:
            entries = "\n".join(_entry(parameter.name, texts[parameter.name]) for parameter in further)
            line = re.compile(rf"^  {last.name}: .*(\n    .*)*", re.MULTILINE)
            function.__doc__ = line.sub(lambda _: entries, inspect.cleandoc(function.__doc__))
        return function

    return listed


def _entry(name: str, text: str) -> str:
    words = " ".join(text.split())
    return textwrap.fill(f"{name}: {words}", _WIDTH, initial_indent="  ", subsequent_indent="    ")
