"""Puts itself between the package and Redis, at each call of a script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from spark_bull.store.connection import Connection

#: `act(name, call)` decides what becomes of a call of the script `name`.
Act = Callable[[str, Callable[[], Any]], Any]


class Died(BaseException):
    """The process has died."""


@contextmanager
def calls_of_scripts(act: Act) -> Iterator[None]:
    script = Connection.script

    def acting(self: Connection, name: str, *rest: Any) -> Any:
        return act(name, lambda: script(self, name, *rest))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "script", acting)
        yield
