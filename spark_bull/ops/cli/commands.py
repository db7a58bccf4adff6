"""All commands, in the groups and in the order of the help.

A command imports only its own module: all modules together take three times as long as most commands run.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from itertools import chain
from typing import Final

from spark_bull.ops.cli.command import Command

#: The commands of each group, with the module that has them in its `COMMANDS`.
GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "Queues": {
        **dict.fromkeys(("queues", "counts", "workers"), "show"),
        "tail": "watch",
        **dict.fromkeys(("pause", "resume", "close-intake", "open-intake", "limits", "groups", "rate-limit"), "manage"),
        **dict.fromkeys(("drain", "obliterate", "reshard"), "manage"),
    },
    "Jobs": {
        **dict.fromkeys(("page", "job", "flow", "logs"), "show"),
        "add": "add",
        "wait": "wait",
        **dict.fromkeys(("retry", "delay", "prioritize", "update", "move", "complete", "fail", "remove"), "change"),
        **dict.fromkeys(("free", "discard-children"), "change"),
        **dict.fromkeys(("cancel", "clean", "clear-logs"), "manage"),
    },
    "Schedules": dict.fromkeys(("schedulers", "schedule", "run-scheduler", "unschedule"), "schedule"),
    "Run": {**dict.fromkeys(("dispatch", "work", "collect", "replay", "report"), "programs"), "promote": "promote"},
    "Serve": {"serve": "serve", "metrics": "metrics"},
    "Repair": {
        "doctor": "doctor.command",
        "writes": "show",
        **dict.fromkeys(("recover", "remove-orphans", "sweep", "trim-events"), "manage"),
    },
    "Learn": {"demo": "demo", "notebooks": "demo", "completion": "completion", "help": "help"},
}
#: The module of each command.
MODULES: Final = dict(chain.from_iterable(group.items() for group in GROUPS.values()))


def all_commands() -> dict[str, Command]:
    """The commands by their names, in the order of the groups."""
    by_name = {command.name: command for module in set(MODULES.values()) for command in commands_of(module)}
    return {name: by_name[name] for name in MODULES}


def commands_like(name: str) -> tuple[Command, ...]:
    """The commands of the module that has the command `name`."""
    return commands_of(MODULES[name])


def commands_of(module: str) -> tuple[Command, ...]:
    found: tuple[Command, ...] = import_module(f"spark_bull.ops.cli.{module}").COMMANDS
    return found
