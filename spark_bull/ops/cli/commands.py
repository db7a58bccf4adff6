"""All commands, in the order of the help.

A command imports only its own module: all modules together take three times as long as most commands run.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from itertools import chain
from typing import Final

from spark_bull.ops.cli.command import Command

#: The names of the commands of a module, by the constant that holds them.
NAMES: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("show", "SHOW"): ("queues", "counts", "page", "job", "flow", "logs", "workers", "writes"),
    ("watch", "TAIL"): ("tail",),
    ("add", "ADD"): ("add",),
    ("schedule", "SCHEDULE"): ("schedulers", "schedule", "run-scheduler", "unschedule"),
    ("manage", "MANAGE"): (
        *("pause", "resume", "close-intake", "open-intake", "retry", "manage", "cancel", "remove", "remove-orphans"),
        *("sweep", "clear-logs", "trim-events", "clean", "drain", "obliterate", "recover"),
    ),
    ("manage", "RESHARD"): ("reshard",),
    ("manage", "LIMITS"): ("limits", "groups", "rate-limit"),
    ("promote", "PROMOTE"): ("promote",),
    ("metrics", "METRICS"): ("metrics",),
    ("doctor.command", "DOCTOR"): ("doctor",),
    ("serve", "SERVE"): ("serve",),
    ("programs", "PROGRAMS"): ("dispatch", "replay", "work", "collect", "report"),
    ("demo", "DEMO"): ("demo",),
    ("demo", "NOTEBOOKS"): ("notebooks",),
    ("completion", "COMPLETION"): ("completion",),
}


def all_commands() -> tuple[Command, ...]:
    return tuple(chain.from_iterable(commands_of(*group) for group in NAMES))


def commands_like(name: str | None) -> tuple[Command, ...]:
    """The commands of the module that has the command `name`; all if there is none."""
    for group, names in NAMES.items():
        if name in names:
            return commands_of(*group)
    return all_commands()


def commands_of(module: str, constant: str) -> tuple[Command, ...]:
    found: Command | tuple[Command, ...] = getattr(import_module(f"spark_bull.ops.cli.{module}"), constant)
    return found if isinstance(found, tuple) else (found,)
