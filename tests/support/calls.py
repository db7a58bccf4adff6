"""Puts itself between the package and Redis, at each call of a script, or of several calls in one round trip."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from spark_bull.store.connection import Command, Connection

#: `act(name, call)` decides what becomes of a call of the script `name`.
Act = Callable[[str, Callable[[], Any]], Any]


class Died(BaseException):
    """The process has died."""


@contextmanager
def calls_of_scripts(act: Act) -> Iterator[None]:
    script, pipeline = Connection.script, Connection.pipeline

    def acting(self: Connection, name: str, *rest: Any) -> Any:
        return act(name, lambda: script(self, name, *rest))

    def acting_together(self: Connection, commands: Sequence[Command], what: str = "") -> Any:
        def call() -> Any:
            return pipeline(self, commands, what)

        name = re.fullmatch("script `(.+)`", what)
        return act(name[1], call) if name else call()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "script", acting)
        patch.setattr(Connection, "pipeline", acting_together)
        yield
