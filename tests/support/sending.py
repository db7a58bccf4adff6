"""Sends scripts again, as a client does after a lost reply."""

from __future__ import annotations

from typing import Any

import pytest

from spark_bull.store.connection import Connection


def send_scripts_twice(monkeypatch: pytest.MonkeyPatch, *, alike: bool = False) -> list[str]:
    """Each script is sent again after its reply, with the same keys and arguments; the second reply counts.

    alike: it must equal the first one, except that of `work`, which tells the time. Returns the names of the scripts
    that are sent from now on, without repetitions.
    """
    script = Connection.script
    names: list[str] = []

    def twice(self: Connection, name: str, *call: Any) -> Any:
        names.append(name)
        first, second = script(self, name, *call), script(self, name, *call)
        assert not alike or first == second or name.endswith("/work"), f"{name} replied {first!r}, then {second!r}"
        return second

    monkeypatch.setattr(Connection, "script", twice)
    return names
