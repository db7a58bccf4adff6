"""The queues that a service looks after: named ones, or all that a glob finds, as soon as they exist."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from spark_bull.clock import monotonic_s
from spark_bull.dialects.registry import found_dialect
from spark_bull.errors import DialectError
from spark_bull.keys import QueueKeys
from spark_bull.options import Options
from spark_bull.queue.find import find_queues, is_glob
from spark_bull.queue.handle import QueueHandle
from spark_bull.store.connection import Connection
from spark_bull.store.settings import settings_of

log = logging.getLogger("spark_bull")

#: How often globs are looked up again, and how often queues that don't exist yet are looked for.
GLOB_S: Final = 30.0
MISSING_S: Final = 1.0


class QueueSet:
    """`queues`: a name or glob, or several; all of the prefix when there are none.

    Of the queues that a glob finds, those that can't be of the dialect asked for are left out, which is logged.
    """

    def __init__(self, options: Options, queues: str | Iterable[str]) -> None:
        self._options = options
        self._wanted = [queues] if isinstance(queues, str) else list(queues) or ["*"]
        self._connection = Connection(settings_of(options))
        self._handles: dict[str, QueueHandle] = {}
        self._left_out: set[str] = set()
        self._globs_at = self._missing_at = 0.0
        self._names: list[str] = []

    def handles(self) -> list[QueueHandle]:
        """The queues that exist by now. Raises ConnectionLost; DialectError for a named queue of another dialect."""
        now = monotonic_s()
        if now >= self._globs_at:
            self._names = self._found()
            self._globs_at = now + GLOB_S
        missing = [name for name in self._names if not self._is_settled(name)]
        if missing and now >= self._missing_at:
            for name in missing:
                self._open(name)
            self._missing_at = now + MISSING_S
        return list(self._handles.values())

    @property
    def complete(self) -> bool:
        """Whether all queues that were asked for exist."""
        return all(map(self._is_settled, self._names))

    def _is_settled(self, name: str) -> bool:
        return name in self._handles or name in self._left_out

    def _found(self) -> list[str]:
        names: list[str] = []
        for wanted in self._wanted:
            names += find_queues(self._connection, self._options["prefix"], wanted) if is_glob(wanted) else [wanted]
        return list(dict.fromkeys(names))

    def _open(self, name: str) -> None:
        keys = QueueKeys(name, self._options["prefix"])
        try:
            dialect = found_dialect(self._connection, keys, self._options["protocol"])
        except DialectError as error:
            if name in self._wanted:
                raise
            log.warning("left out: %s", error)
            self._left_out.add(name)
            return
        if dialect is not None:
            self._handles[name] = QueueHandle(self._connection, keys, dialect, self._options["bullmqVersion"])
