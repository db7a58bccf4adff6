"""The first part of what a call of a script sends: the name of the script, and its keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from spark_bull.core.store.raw_replies import packed_command
from spark_bull.core.store.scripts import Script, Value


class CallStart:
    """The script and the keys of a call. Raises the ScriptError of `Script.bind_keys`."""

    def __init__(self, script: Script, keys: Mapping[str, Any]) -> None:
        self._sha = script.sha
        #: KEYS in the order of the contract.
        self.keys = script.bind_keys(keys)

    def with_args(self, args: Sequence[Value]) -> tuple[Value, ...] | bytes:
        """The call with these arguments, by the SHA1 of the script."""
        return ("EVALSHA", self._sha, len(self.keys), *self.keys, *args)


class _PackedStart(CallStart):
    """The start of many calls, which are sent as bytes: the keys are packed once."""

    def with_args(self, args: Sequence[Value]) -> bytes:
        return b"*%d\r\n%b%b" % (3 + len(self.keys) + len(args), self._packed, _parts(*args))

    @cached_property
    def _packed(self) -> bytes:
        return _parts("EVALSHA", self._sha, len(self.keys), *self.keys)


class RepeatedKeys(dict[str, Any]):
    """Keys by their names, for calls that have the same ones again: each script binds and packs them once.

    Between two calls of a worker they leave the caches of the CPU: to bind and to pack them takes half as long as to
    receive a hundred jobs.
    """

    def __init__(self, keys: Mapping[str, Any]) -> None:
        super().__init__(keys)
        #: By the SHA1 of the script.
        self._starts: dict[str, CallStart] = {}

    def start_of(self, script: Script) -> CallStart:
        """The start of the calls of a script with these keys."""
        if script.sha not in self._starts:
            self._starts[script.sha] = _PackedStart(script, self)
        return self._starts[script.sha]


def _parts(*values: Value) -> bytes:
    """Parts of a command, as they are sent."""
    _, _, parts = packed_command(values).partition(b"\r\n")
    return parts
