"""Checks the rights of the Redis user for the verbs of docs/access.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from spark_bull.core.keys import QueueKeys
from spark_bull.ops.cli.doctor.finding import Finding, number_of, ok, problem, some, warning
from spark_bull.ops.cli.doctor.server import Server
from spark_bull.ops.cli.doctor.verb_commands import COMMANDS

#: The verbs that a user may have.
VERBS: Final = tuple(verb for verb in COMMANDS if verb not in ("all", "cluster", "doctor"))
#: Commands without which a verb works, but lacks something.
_OPTIONAL: Final = frozenset(
    {"info", "client|list", "client|unblock", "config|get", "multi", "command|info", "cluster|info"}
)
#: Part of Redis' message for a command; those for keys and channels lack it.
_OF_COMMAND: Final = "to run the"


def rights(server: Server, verbs: Sequence[str]) -> Iterator[Finding]:
    """Whether the user may send the commands of verbs, on keys of the prefix."""
    key = QueueKeys("doctor", server.prefix)["meta"]
    needed = ("all", *(["cluster"] if server.connection.is_cluster else []), *verbs)
    names = sorted({name for verb in needed for name in COMMANDS[verb].split()})
    denials = server.connection.denials(names, key)
    if _OF_COMMAND not in denials.get("get", _OF_COMMAND):
        yield problem(f"the user may not use keys such as {key}", f"ACL SETUSER … ~{server.prefix}:*")
        return
    missing = {verb: _denied(verb, denials) for verb in needed}
    if not any(missing.values()):
        yield ok(f"the user has the rights for {', '.join(verbs)}")
        return
    by_number = Counter({verb: len(denied) for verb, denied in missing.items() if denied})
    for verb, number in by_number.items():
        denied = missing[verb]
        shown = some([f"+{name}" for name in denied])
        finding = warning if verb in verbs else problem
        what = {"all": "everything", "cluster": "a cluster"}.get(verb, verb)
        yield finding(
            f"the user lacks {number_of(number, 'command')} for {what}: {shown}",
            f"ACL SETUSER … with the commands of `{verb}` in docs/access.md"
            + (f", or leave {what} out with --rights" if verb in verbs else ""),
        )


def _denied(verb: str, denials: dict[str, str]) -> list[str]:
    names = [name for name in COMMANDS[verb].split() if name not in _OPTIONAL]
    return [name for name in names if _OF_COMMAND in denials.get(name, "")]
