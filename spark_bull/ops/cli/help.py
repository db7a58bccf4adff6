"""`spark-bull help`: the commands in their groups, and what concerns all of them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from spark_bull.core.errors import OptionError, did_you_mean
from spark_bull.ops.cli.arguments import CONNECTION, argument
from spark_bull.ops.cli.command import Output, command
from spark_bull.ops.cli.commands import GROUPS, MODULES, all_commands, commands_like
from spark_bull.ops.cli.status import MEANINGS
from spark_bull.ops.cli.tables import as_table

_HEAD: Final = "spark-bull COMMAND …: manages and processes queues of Bull and BullMQ on Redis"
_TOPICS: Final = {
    "COMMAND": "the arguments of a command, with an example",
    "connection": "how Redis and the queue are found: --url, --prefix, …",
    "status": "the exit statuses",
}
_CONNECTION: Final = "How each command finds Redis and the queue. These options may come before or after the command."


def _help(args: Namespace) -> Output:
    topics = {"connection": _connection, "status": _statuses}
    if args.topic is None:
        return _overview()
    if args.topic in topics:
        return topics[args.topic]()
    if args.topic not in MODULES:
        near = did_you_mean(args.topic, [*MODULES, *topics])
        raise OptionError(f"expected a command, connection or status, got: {args.topic!r}{near}")
    args.whole(commands_like(args.topic)).parse_args([args.topic, "--help"])
    return None


def _overview() -> str:
    commands = all_commands()
    groups = {group: {name: commands[name].help for name in names} for group, names in GROUPS.items()}
    groups["spark-bull help"] = _TOPICS
    parts = ["\n".join([name, *(f"  {one:18}{help}" for one, help in rows.items())]) for name, rows in groups.items()]
    return "\n\n".join([_HEAD, *parts])


def _connection() -> str:
    of = ArgumentParser(usage="spark-bull COMMAND … --url redis://host:6379", description=_CONNECTION, add_help=False)
    for one in CONNECTION:
        of.add_argument(*one.names, **one.settings)
    of.epilog = "Redis: --url, else $SPARK_BULL_URL, else redis://localhost:6379/0."
    return of.format_help().rstrip()


def _statuses() -> str:
    return as_table([{"status": status, "meaning": meaning} for status, meaning in MEANINGS.items()])


COMMANDS: Final = (
    command(
        "help",
        "list the commands, or explain one",
        "help counts",
        _help,
        argument("topic", nargs="?", help="a command, connection, or status"),
        of_queue=False,
    ),
)
