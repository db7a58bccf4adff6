"""Other queues of the jobs that belong together: one script writes to all of them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from spark_bull.core.dialects.registry import checked_dialect
from spark_bull.core.errors import OptionError
from spark_bull.core.keys import SEGMENTS, QueueKeys, hash_tag
from spark_bull.core.queue.handle.handle import QueueHandle
from spark_bull.core.queue.handle.queue_registry import note_queues


def keys_of(handle: QueueHandle, queue: str, of: str, prefix: str | None = None) -> QueueKeys:
    """The keys of the queue of `of`, such as "a follow-up". prefix: that of its keys; None: that of `handle`.

    Raises OptionError for a queue that no script can reach together with that of `handle`, and DialectError for one of
    another dialect.
    """
    there = QueueKeys(queue, prefix or handle.keys.prefix)
    return handle.keys if there == handle.keys else _checked(handle, there, of)


@lru_cache(maxsize=1024)
def _checked(handle: QueueHandle, there: QueueKeys, of: str) -> QueueKeys:
    """Reads the signs of the queue's dialect in Redis, once per process."""
    handle.dialect.check_work(there.queue)
    tag = hash_tag(handle.keys.prefix, handle.keys.queue)
    if tag and tag != hash_tag(there.prefix, there.queue):
        raise OptionError(
            f"expected the queue of {of} to have the hash tag {{{tag}}} of queue {handle.keys.queue}, as one script "
            f"writes to both, got: {there.queue!r}"
        )
    found = checked_dialect(handle.connection, there, handle.dialect.name)
    if handle.bullmq_version == "auto":
        found.check_work(there.queue)
    return there


def touched_keys(handle: QueueHandle, queues: Iterable[str], names: Iterable[str] = SEGMENTS) -> list[str]:
    """The keys of other queues that a script may touch, which are noted in the registry of queues.

    names: of the keys of each; by default all that have names.
    """
    there = [keys for queue in queues if (keys := QueueKeys(queue, handle.keys.prefix)) != handle.keys]
    note_queues(handle.connection, there)
    return [keys[name] for keys in there for name in names]
