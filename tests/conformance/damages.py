"""Damages to the keys of a job or a queue, and their outcomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark_bull.core.queue.handle.handle import QueueHandle

ALL = ("bull-1", "bull", "bullmq")


@dataclass(frozen=True)
class Damage:
    """A change to the keys of a job, and its outcome.

    outcome: "runs", "gone" (it counts as removed), "aside" (its id is recorded as damaged), or a pattern of the reason
    with which it fails without being run.
    """

    name: str
    outcome: str
    apply: Callable[[QueueHandle, str], None]
    dialects: tuple[str, ...] = ALL

    def __str__(self) -> str:
        return self.name


def command(*parts: Any) -> Callable[[QueueHandle, str], None]:
    """A Redis command, in which <job> and <key:…> are replaced by keys of the queue."""

    def apply(handle: QueueHandle, job_id: str) -> None:
        handle.connection.call(*[_filled(part, handle, job_id) for part in parts])

    return apply


def _filled(part: Any, handle: QueueHandle, job_id: str) -> Any:
    if not isinstance(part, str):
        return part
    if part == "<made>":
        return handle.dialect.claim_fields["attempts_made"]
    if part == "<stalled>":
        return handle.dialect.claim_fields["stalled_counter"]
    if part.startswith("<key:"):
        return handle.keys[part[5:-1]]
    return part.replace("<job>", handle.keys.job(job_id)).replace("<base>", handle.keys.base)


def both(*steps: Callable[[QueueHandle, str], None]) -> Callable[[QueueHandle, str], None]:
    def apply(handle: QueueHandle, job_id: str) -> None:
        for step in steps:
            step(handle, job_id)

    return apply


def field(name: str, value: str | bytes) -> Callable[[QueueHandle, str], None]:
    return command("HSET", "<job>", name, value)


def lost(name: str) -> Callable[[QueueHandle, str], None]:
    return command("HDEL", "<job>", name)


def replaced(*parts: Any) -> Callable[[QueueHandle, str], None]:
    """Replaces the key of the job by one of another type."""
    return both(command("DEL", "<job>"), command(*parts))


NO_OBJECT = "^expected `opts` of job .* to be a JSON object, got: "
NO_JSON = "^expected `data` of job .* to be JSON .*, got: "
NO_NUMBER = "^expected `(atm|attemptsMade)` of job .* to be a whole number, got: "
NO_PAYLOAD = "^expected the payload of the job, found only what workers have written since it was removed$"

#: Damages to single jobs, which can all be in one queue.
DAMAGES = [
    Damage("data missing", NO_JSON + "nothing", lost("data")),
    Damage("data empty", NO_JSON + "nothing", field("data", "")),
    Damage("data no JSON", NO_JSON + "'{broken'", field("data", "{broken")),
    Damage("data nested too deeply", NO_JSON, field("data", "[" * 100_000)),
    Damage("data no UTF-8", "runs", field("data", b'{"n": "\xff\xfe"}')),
    Damage("opts missing", "runs", lost("opts")),
    Damage("opts empty", "runs", field("opts", "")),
    Damage("opts null", NO_OBJECT + "'null'", field("opts", "null")),
    Damage("opts a list", NO_OBJECT, field("opts", '[{"attempts":2}]')),
    Damage("opts a text", NO_OBJECT, field("opts", '"attempts"')),
    Damage("opts a number", NO_OBJECT, field("opts", "7")),
    Damage("opts no JSON", NO_OBJECT + "'{\"attempts\":'", field("opts", '{"attempts":')),
    Damage("opts with NaN", NO_OBJECT, field("opts", '{"attempts":NaN}')),
    Damage("opts no UTF-8", "runs", field("opts", b'{"tenant":"\xff"}')),
    Damage("attempts no number", "runs", field("opts", '{"attempts":"many"}')),
    Damage("attempts huge", "runs", field("opts", '{"attempts":1e300}')),
    Damage("backoff a list", "runs", field("opts", '{"attempts":2,"backoff":[1,"x"]}')),
    Damage("backoff of texts", "runs", field("opts", '{"attempts":2,"backoff":{"type":5,"delay":"soon","jitter":[]}}')),
    Damage("backoff huge", "runs", field("opts", '{"attempts":2,"backoff":{"type":"exponential","delay":1e300}}')),
    Damage("removeOnComplete of texts", "runs", field("opts", '{"removeOnComplete":{"count":"x","age":[]}}')),
    Damage(
        "removeOnComplete huge",  # In Bull 1, any number removes the job.
        "runs",
        field("opts", '{"removeOnComplete":1e300,"removeOnFail":{"age":1e30}}'),
        ("bull", "bullmq"),
    ),
    Damage("other options of texts", "runs", field("opts", '{"stackTraceLimit":"x","kl":"x","timeout":"x"}')),
    Damage("attempts made no number", NO_NUMBER + "'many'", field("<made>", "many")),
    Damage("attempts made huge", NO_NUMBER, field("<made>", "9" * 30)),
    Damage("attempts made negative", NO_NUMBER, field("<made>", "-3")),
    Damage("attempts started no number", "runs", field("ats", "many")),
    Damage("attempts started huge", "runs", field("ats", "9" * 30)),
    Damage("stalled counter no number", "runs", field("<stalled>", "many")),
    Damage("priority no number", "runs", field("priority", "high")),
    Damage("priority infinite", "runs", field("priority", "inf")),
    Damage("timestamp missing", "runs", lost("timestamp")),
    Damage("timestamp no number", "runs", field("timestamp", "yesterday")),
    Damage("timestamp huge", "runs", field("timestamp", "9" * 30)),
    Damage("delay no number", "runs", field("delay", "later")),
    Damage("progress no JSON", "runs", field("progress", "half")),
    Damage("stacktrace no JSON", "runs", field("stacktrace", "[broken")),
    Damage("stacktrace an object", "runs", field("stacktrace", '{"a":1}')),
    Damage("name missing", "runs", lost("name")),
    Damage("name no UTF-8", "runs", field("name", b"\xff\xfe")),
    Damage("attempts of the hash no number", "runs", field("attempts", "many"), ("bull-1",)),
    Damage("parentKey no key", "runs", field("parentKey", "nobody"), ("bullmq",)),
    Damage("parent no JSON", "runs", both(field("parentKey", "<base>1"), field("parent", "{broken")), ("bullmq",)),
    Damage("parent a number", "runs", both(field("parentKey", "<base>1"), field("parent", "7")), ("bullmq",)),
    Damage(
        "parent's children of another type",
        "runs",
        both(command("HSET", "<job>", "parentKey", "<job>:p"), command("SET", "<job>:p:dependencies", "x")),
        ("bullmq",),
    ),
    Damage(
        "deduplication key of another type",
        "runs",
        both(field("deid", "twin"), command("RPUSH", "<base>de:twin", "x")),
        ("bull", "bullmq"),
    ),
    Damage(
        "what deduplication put aside is no job",
        "runs",
        both(field("deid", "next"), command("HSET", "<base>dn:next", "opts", "{broken")),
        ("bullmq",),
    ),
    Damage("lock of another type", "runs", both(command("DEL", "<job>:lock"), command("RPUSH", "<job>:lock", "x"))),
    Damage("only progress left", NO_PAYLOAD, replaced("HSET", "<job>", "progress", "7")),
    Damage("nothing left", "gone", command("DEL", "<job>")),
    Damage("key a string", "aside", replaced("SET", "<job>", "x")),
    Damage("key a list", "aside", replaced("RPUSH", "<job>", "x")),
    Damage("key a set", "aside", replaced("SADD", "<job>", "x")),
    Damage("key a sorted set", "aside", replaced("ZADD", "<job>", 1, "x")),
]

QUEUE_DAMAGES = [
    Damage("limiter a text", "runs", command("SET", "<key:limiter>", "soon")),
    Damage("limiter a list", "runs", command("RPUSH", "<key:limiter>", "x")),
    Damage(
        "limits of the queue no numbers",
        "runs",
        command("HSET", "<key:meta>", "concurrency", "x", "max", "y"),
        ("bullmq",),
    ),
]
