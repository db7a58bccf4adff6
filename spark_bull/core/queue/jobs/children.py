"""The results of a parent's children, which BullMQ stores with the parent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from spark_bull.core.errors import OptionError
from spark_bull.core.keys import QueueKeys
from spark_bull.core.model.job_json import json_or_text
from spark_bull.core.queue.handle.handle import QueueHandle

#: Default of the maximum number of children whose results are read.
MAX_CHILDREN: Final = 100_000
#: Approximate number of results that one command reads.
SCAN_SIZE: Final = 500


def values_of(handle: QueueHandle, job_id: str, limit: int = MAX_CHILDREN) -> dict[str, Any]:
    """The return values of the completed children of a job, by the keys of the children.

    Raises DialectError, and OptionError if there are more than `limit`.
    """
    handle.dialect.require("flows")
    fields = _fields(handle, handle.keys.children_values(job_id), f"values of children of job {job_id}", limit)
    return {child: json_or_text(opened_value(handle, *named(handle.keys, child), value)) for child, value in fields}


def named(keys: QueueKeys, child: str) -> tuple[str, str]:
    """The queue and id of a child. The name of a queue has no ':', an id can have some. The name has the prefix in
    front if it is another one than that of `keys`.
    """
    prefix = f"{keys.prefix}:"
    if child.startswith(prefix):
        queue, _, job_id = child[len(prefix) :].partition(":")
    else:
        queue, _, job_id = child.rpartition(":")
    return queue, job_id


def opened_value(handle: QueueHandle, queue: str, job_id: str, value: str) -> str:
    """The result of a child of a job, as it was before it was kept. queue: as `named` returns it."""
    prefix, _, name = queue.rpartition(":")
    return handle.payloads.opened(QueueKeys(name, prefix or handle.keys.prefix), "returnvalue", job_id, value)


def failures_of(handle: QueueHandle, job_id: str, limit: int = MAX_CHILDREN) -> dict[str, str]:
    """The reasons of failed children that do not fail their parent, by the keys of the children.

    Raises DialectError, and OptionError if there are more than `limit`.
    """
    handle.dialect.require("flows")
    return dict(_fields(handle, handle.keys.children_failures(job_id), f"failures of children of job {job_id}", limit))


def _fields(handle: QueueHandle, key: str, what: str, limit: int) -> Iterator[tuple[str, str]]:
    """The fields of a HASH. A field that is added meanwhile may be left out."""
    call = handle.connection.call
    count = call("HLEN", key)
    if count > limit:
        raise OptionError(
            f"expected at most {limit:,} {what} of queue {handle.keys.queue}, found {count:,}: raise `limit`"
        )
    cursor, is_over = 0, count == 0
    while not is_over:
        cursor, found = call("HSCAN", key, cursor, "COUNT", SCAN_SIZE)
        is_over = int(cursor) == 0
        for child, value in found.items():
            yield child.decode(errors="replace"), value.decode(errors="replace")
