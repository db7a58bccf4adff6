"""The intake of a queue: while it is closed, writers of this package are refused, and workers go on."""

from __future__ import annotations

from spark_bull.core.keys import QueueKeys
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.handle.length_limit import intake_closed
from spark_bull.core.store.connection import Command


def close_intake(handle: QueueHandle) -> None:
    """Lets the queue accept no more jobs."""
    handle.connection.call("SET", handle.keys["intake_closed"], 1)


def open_intake(handle: QueueHandle) -> None:
    """Lets the queue accept jobs again."""
    handle.connection.call("DEL", handle.keys["intake_closed"])


def is_intake_open(handle: QueueHandle) -> bool:
    return not handle.connection.call(*intake_check(handle.keys))


def intake_check(keys: QueueKeys) -> Command:
    """The command that returns more than 0 if the intake is closed."""
    return ("EXISTS", keys["intake_closed"])


def check_intake(handle: QueueHandle) -> None:
    """Raises IntakeClosed for a queue that accepts no jobs."""
    if not is_intake_open(handle):
        raise intake_closed(handle.keys.queue)
