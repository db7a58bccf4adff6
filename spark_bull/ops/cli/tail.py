"""`spark-bull tail`: prints the events of queues as they happen."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from spark_bull.core.model.jobs import QueueEvent
from spark_bull.core.queue.events.events import QueueEvents
from spark_bull.core.time_text import duration, utc
from spark_bull.ops.cli.arguments import QUEUES, argument, comma_separated
from spark_bull.ops.cli.command import command, existing_queue, queues_of
from spark_bull.ops.cli.interrupt import until_interrupted
from spark_bull.ops.cli.tables import one_line

#: Characters of a value in a line.
_SHOWN: Final = 200


def _tail(args: Namespace) -> None:
    handles = [existing_queue(args, name).handle for name in queues_of(args, args.queues)]
    wanted = frozenset(args.event)
    with until_interrupted(), QueueEvents(handles, start=args.start) as events:
        for event in events:
            if not wanted or event.event in wanted:
                print(_as_json(event) if args.json else _line(event), flush=True)


def _as_json(event: QueueEvent) -> str:
    return json.dumps({name: value for name, value in asdict(event).items() if value is not None}, ensure_ascii=False)


def _line(event: QueueEvent) -> str:
    """Such as `2026-01-31 08:00:00Z  mail  completed  42  from active  returnvalue {"sent":true}`."""
    return one_line("  ".join((utc(event.timestamp), event.queue, event.event, *_parts(event))))


def _parts(event: QueueEvent) -> Iterator[str]:
    if event.job_id is not None:
        yield event.job_id
    if event.prev is not None:
        yield f"from {event.prev}"
    if event.run_at is not None:
        yield f"runs in {duration(max(0, event.run_at - event.timestamp))}"
    if event.failed_reason is not None:
        yield f"failedReason {_short(event.failed_reason)}"
    for name, value in (("returnvalue", event.returnvalue), ("data", event.data), *event.fields.items()):
        if value is not None:
            yield f"{name} {_short(value)}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


TAIL: Final = command(
    "tail",
    "print the events of queues as they happen, until Ctrl-C",
    "tail mail --event completed,failed",
    _tail,
    QUEUES,
    argument(
        "--event",
        type=comma_separated,
        action="extend",
        default=[],
        metavar="NAMES",
        help="only these events, comma separated: waiting, active, progress, completed, failed, …",
    ),
    argument(
        "--from",
        dest="start",
        metavar="ID",
        help="BullMQ: begin with all events that Redis keeps (0), or after this one; default: from now on",
    ),
    of_queue=False,
)
