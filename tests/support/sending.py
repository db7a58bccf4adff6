"""Sends scripts again, as a client does after a lost reply."""

from __future__ import annotations

from typing import Any

import pytest

from spark_bull.store.connection import Connection


def send_scripts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each script is sent again after its reply, with the same keys and arguments; the second reply counts."""
    script = Connection.script

    def twice(self: Connection, *call: Any) -> Any:
        script(self, *call)
        return script(self, *call)

    monkeypatch.setattr(Connection, "script", twice)
