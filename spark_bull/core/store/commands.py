"""Commands and calls of scripts, as they are sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from hiredis import pack_command

from spark_bull.core.store.scripts import Script, Value, load

Command = tuple[Value, ...]

#: Commands without a key.
_WITHOUT_KEY: Final = frozenset(["CLIENT", "CLUSTER", "CONFIG", "INFO", "PING", "SCAN", "TIME", "WAIT"])
#: Commands of two words, such as MEMORY USAGE.
_OF_TWO_WORDS: Final = frozenset(["MEMORY"])


def key_of(command: Command) -> str | bytes | None:
    """The first key of a command; None for one without a key."""
    name, at = command[0], 1
    if name in _WITHOUT_KEY or (name == "EVAL" and not command[2]):
        return None
    if name == "EVAL":  # EVAL <script> <number of keys> <key>…
        at = 3
    elif name == "XREAD":  # XREAD … STREAMS <key>…
        at = command.index("STREAMS") + 1
    elif name in _OF_TWO_WORDS:
        at = 2
    key = command[at]
    return key if isinstance(key, bytes) else str(key)


def packed(command: Command) -> bytes:
    """A command as it is sent: `*`, the number of its parts, a line break, and the parts."""
    sent: bytes = pack_command(command)  # type: ignore[arg-type]  # of any length
    return sent


def script_command(name: str, keys: Mapping[str, Any], args: Mapping[str, Any]) -> Command:
    """The command that runs a script in a pipeline; `Connection.script` sends less when Redis knows the script."""
    script = load(name)
    return CallStart(script, keys).in_full(script.bind_args(args))


class CallStart:
    """The script and the keys of calls, which are packed once. Raises the ScriptError of `Script.bind_keys`."""

    def __init__(self, script: Script, keys: Mapping[str, Any]) -> None:
        self._script = script
        #: KEYS in the order of the contract.
        self.keys = script.bind_keys(keys)

    def with_args(self, args: Sequence[Value]) -> bytes:
        """The call with these arguments, by the SHA1 of the script, as it is sent."""
        return b"*%d\r\n%b%b" % (3 + len(self.keys) + len(args), self._packed, _parts(*args))

    def in_full(self, args: Sequence[Value]) -> Command:
        """The call with these arguments for a server that may not know the script."""
        return ("EVAL", self._script.source, len(self.keys), *self.keys, *args)

    @cached_property
    def _packed(self) -> bytes:
        return _parts("EVALSHA", self._script.sha, len(self.keys), *self.keys)


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
            self._starts[script.sha] = CallStart(script, self)
        return self._starts[script.sha]


def _parts(*values: Value) -> bytes:
    """Parts of a command, as they are sent."""
    _, _, parts = packed(values).partition(b"\r\n")
    return parts
