"""One queue, in one dialect, on one Redis: what every verb needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import getpid
from threading import get_ident
from typing import Any, Final
from uuid import uuid4

from spark_bull.dialects.base import Dialect
from spark_bull.dialects.registry import dialect_of
from spark_bull.keys import SEGMENTS, QueueKeys
from spark_bull.options import Options
from spark_bull.store.connection import Connection
from spark_bull.store.settings import settings_of

#: Jobs that one script call handles, unless the user says else.
CHUNK_SIZE: Final = 500
#: Ids that one script moves from list to list.
MOVE_SIZE: Final = 5_000
#: How long the answer to a sender's last call is kept, for when it has to ask again.
RECEIPT_TTL_MS: Final = 3_600_000


@dataclass(frozen=True)
class QueueHandle:
    """Picklable. `token` signs pub/sub messages, as a Node queue's own token does."""

    connection: Connection
    keys: QueueKeys
    dialect: Dialect
    bullmq_version: str = "auto"
    token: str = field(default_factory=lambda: str(uuid4()))

    @cached_property
    def _common_keys(self) -> dict[str, Any]:
        return {"base": self.keys.base} | {name: self.keys[name] for name in SEGMENTS}

    @cached_property
    def _common_args(self) -> dict[str, Any]:
        return {
            "base": self.keys.base,
            "queue": self.keys.queue,
            "token": self.token,
            "bullmq_version": self.bullmq_version,
        }

    def run(self, verb: str, args: Mapping[str, Any] | None = None, **keys: str | list[str] | None) -> Any:
        """Runs the script of a verb; the queue's own keys and names are filled in, and a key of None is absent."""
        return self.connection.script(
            self.dialect.script(verb), self._common_keys | keys, self._common_args | dict(args or {})
        )

    def run_once(self, verb: str, args: Mapping[str, Any], **keys: str) -> Any:
        """Runs a script that keeps its answer for a while, in case that it gets lost and the call is sent again."""
        receipt = self.keys.receipt(self.sender)
        return self.run(verb, {**args, "call": uuid4().hex, "ttl_ms": RECEIPT_TTL_MS}, receipt=receipt, **keys)

    @property
    def sender(self) -> str:
        """Who makes a call: a thread, which makes one at a time. Copies, after a fork or a pickle, are others."""
        return f"{self.token}:{getpid()}:{get_ident()}"


def open_handle(options: Options, queue: str) -> QueueHandle:
    """The handle of one queue, its dialect found. Raises OptionError for a name it refuses."""
    connection = Connection(settings_of(options))
    keys = QueueKeys(queue, options["prefix"])
    dialect = dialect_of(connection, keys, options["protocol"])
    dialect.check_queue(queue)
    return QueueHandle(connection, keys, dialect, options["bullmqVersion"])
