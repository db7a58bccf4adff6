"""What happens in queues, as it happens: `spark-bull counts --watch` and `spark-bull tail`."""

from __future__ import annotations

import json
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from spark_bull.core.clock import duration, epoch_ms, utc
from spark_bull.core.errors import RedisUnavailable
from spark_bull.core.model.jobs import STATES
from spark_bull.core.model.queues import QueueEvent
from spark_bull.core.queue.events.events import QueueEvents
from spark_bull.core.queue.monitor.activity import Look, Throughput, look_at, throughput_of
from spark_bull.ops.cli.arguments import QUEUES, argument, comma_separated
from spark_bull.ops.cli.command import command, existing_queue, options_of, queues_of, until_interrupted
from spark_bull.ops.cli.tables import one_line
from spark_bull.run.services.service import QueueSet

#: Calls are repeated in the next interval.
_RETRY_MS = 200


class Row(NamedTuple):
    """A queue, and what has changed since the last interval."""

    look: Look
    rate: Throughput


#: Shows the rows of an interval, or the last ones with an error.
Show = Callable[[Sequence[Row], str], None]


def watch(args: Namespace) -> None:
    """Shows counts and rates every `args.watch` s until SIGINT or SIGTERM."""
    for name in queues_of(args, args.queues):
        existing_queue(args, name)
    queues = QueueSet(options_of(args, retryMs=_RETRY_MS), args.queues)
    with until_interrupted(), _display(args) as show:
        for rows, error in _intervals(queues, args.watch):
            show(rows, error)


def _intervals(queues: QueueSet, every_s: float) -> Iterator[tuple[list[Row], str]]:
    before: dict[str, Look] = {}
    rows: list[Row] = []
    while True:
        error = ""
        try:
            looks = [look_at(handle) for handle in queues.handles()]
            rows = [Row(look, throughput_of(before.get(look.queue), look)) for look in looks]
            before = {look.queue: look for look in looks}
        except RedisUnavailable as lost:
            error = f"{lost}; trying again"
        yield rows, error
        time.sleep(every_s)


@contextmanager
def _display(args: Namespace) -> Iterator[Show]:
    if args.json:
        yield _print_json
    elif not sys.stdout.isatty():
        yield _print_lines
    else:
        with Live(auto_refresh=False) as live:
            yield lambda rows, error: live.update(_screen(rows, error), refresh=True)


def _print_json(rows: Sequence[Row], error: str) -> None:
    if error:
        print(json.dumps({"time": epoch_ms(), "error": error}), flush=True)
        return
    for look, rate in rows:
        document: dict[str, Any] = {
            "time": look.at_ms,
            "queue": look.queue,
            "in_per_s": rate.added_per_s,
            "out_per_s": rate.left_per_s,
            "counts": look.counts,
            "changes": rate.changes,
        }
        print(json.dumps(document, ensure_ascii=False), flush=True)


def _print_lines(rows: Sequence[Row], error: str) -> None:
    if error:
        print(error, file=sys.stderr, flush=True)
        return
    for look, rate in rows:
        rates = () if rate.added_per_s is None else (f"in {_rate(rate.added_per_s)}", f"out {_rate(rate.left_per_s)}")
        counts = (f"{state} {_count(look, rate, state)}" for state in look.counts if _is_shown(look, rate, state))
        print("  ".join((utc(look.at_ms), one_line(look.queue), *rates, *counts)), flush=True)


def _screen(rows: Sequence[Row], error: str) -> RenderableType:
    states = [state for state in STATES if any(_is_shown(look, rate, state) for look, rate in rows)]
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("queue")
    for name in ("in", "out", *states):
        table.add_column(name, justify="right", no_wrap=True)
    for look, rate in rows:
        counts = [_count(look, rate, state) if state in look.counts else "" for state in states]
        table.add_row(Text(one_line(look.queue)), _rate(rate.added_per_s), _rate(rate.left_per_s), *counts)
    below = Text(error, style="red") if error else Text(utc(max((row.look.at_ms for row in rows), default=epoch_ms())))
    return Group(table, below)


def _is_shown(look: Look, rate: Throughput, state: str) -> bool:
    return bool(look.counts.get(state) or rate.changes.get(state))


def _count(look: Look, rate: Throughput, state: str) -> str:
    change = rate.changes.get(state)
    return f"{look.counts[state]:,}" + (f" ({change:+,})" if change else "")


def _rate(per_s: float | None) -> str:
    return "" if per_s is None else f"{per_s:,.1f}/s"


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
    return one_line("  ".join((utc(event.timestamp), event.queue, event.event, *_columns_of_event(event))))


def _columns_of_event(event: QueueEvent) -> Iterator[str]:
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


COMMANDS: Final = (
    command(
        "tail",
        "print events of queues as they happen, until Ctrl-C",
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
    ),
)
