"""The arguments of commands, as data for argparse, and the types that several commands share."""

from __future__ import annotations

import re
from argparse import SUPPRESS, ArgumentTypeError, Namespace
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, NoReturn

from spark_bull.core.clock import milliseconds_of
from spark_bull.core.model.guards import Guard
from spark_bull.core.options.parts import PROTOCOLS
from spark_bull.core.options.values import priority

#: Stands for a duration in help.
TIME: Final = "TIME"
_INTEGER: Final = re.compile(r"-?[0-9]+(_[0-9]+)*")


def number(text: str) -> int:
    """Parses an integer such as `20` or `10_000` for argparse."""
    if not _INTEGER.fullmatch(text):
        raise ArgumentTypeError(f"expected a number such as 20 or 10_000, got: {text!r}")
    return int(text)


def number_or_zero(text: str) -> int:
    """Parses a number of 0 or more for argparse."""
    if (count := number(text)) < 0:
        raise ArgumentTypeError(f"expected a number of 0 or more, got: {text!r}")
    return count


def rate(text: str) -> float:
    """Parses a number of jobs per second for argparse, such as `20`, `10_000` or `0.5`."""
    whole, point, fraction = text.partition(".")
    if not point:
        return number(text)
    if not _INTEGER.fullmatch(whole) or not re.fullmatch("[0-9]+", fraction):
        raise ArgumentTypeError(f"expected a number such as 20 or 0.5, got: {text!r}")
    return float(text)


def milliseconds(text: str) -> int:
    """Parses a duration for argparse; returns ms."""
    ms = milliseconds_of(text)
    if ms is None:
        raise ArgumentTypeError(f"expected a duration with its unit, such as 500ms, 5s, 3m, 2h or 1d, got: {text!r}")
    return ms


def positive_milliseconds(text: str) -> int:
    """The same, for a duration that is not 0."""
    if not (ms := milliseconds(text)):
        raise ArgumentTypeError(f"expected a duration of 1ms or more, got: {text!r}")
    return ms


def seconds(text: str) -> float:
    """Parses a duration for argparse; returns s."""
    return milliseconds(text) / 1_000


def positive_seconds(text: str) -> float:
    """The same, for a duration that is not 0."""
    return positive_milliseconds(text) / 1_000


class Argument(NamedTuple):
    """What `ArgumentParser.add_argument` gets. Its name or `dest` is the one in Python, with or without the unit."""

    names: tuple[str, ...]
    settings: Mapping[str, Any]


def argument(*names: str, **settings: Any) -> Argument:
    return Argument(names, settings)


def flag(name: str, help: str) -> Argument:
    """An argument without a value."""
    return argument(name, action="store_true", help=help)


def repeated(name: str, metavar: str, help: str, **settings: Any) -> Argument:
    """An argument that may be given several times."""
    return argument(name, action="append", default=[], metavar=metavar, help=help, **settings)


def duration(name: str, help: str, **settings: Any) -> Argument:
    """A time in ms, unless another type is given."""
    return argument(name, metavar=TIME, help=help, **{"type": milliseconds, **settings})


def other_name(name: str, used: str) -> Argument:
    """A name that other programs have for the argument `used`: its use is an error that says so."""

    def refuse(text: str) -> NoReturn:
        raise ArgumentTypeError(f"expected {used} instead, got: {name} {text}")

    return argument(name, type=refuse, default=SUPPRESS, help=SUPPRESS)


#: Names that other servers have for --listen.
OF_LISTEN: Final = (
    other_name("--port", "--listen HOST:PORT"),
    other_name("--host", "--listen HOST:PORT"),
)


def comma_separated(text: str) -> list[str]:
    """Parses names separated by commas, for argparse."""
    return [part.strip() for part in text.split(",") if part.strip()]


def priority_or_name(text: str) -> int | str:
    """Parses a priority for argparse."""
    return priority("priority", text)


def host_and_port(text: str) -> tuple[str, int]:
    """Parses host:port, [host]:port or :port, which is all addresses, for argparse."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65_535 or (":" in host and not host.startswith("[")):
        raise ArgumentTypeError(f"expected host:port, such as 127.0.0.1:8080, got: {text!r}")
    return host.strip("[]") or "0.0.0.0", int(port)


#: How Redis and the queue are found. Commands have these arguments, and `spark-bull help connection` explains them.
CONNECTION: Final = (
    argument("--url", help="redis://, rediss:// or unix://; several for shards (default: $SPARK_BULL_URL)"),
    argument("--prefix", help="prefix of all keys (default: bull)"),
    argument("--protocol", choices=PROTOCOLS, help="dialect of the queue (default: auto)"),
    argument("--shards", metavar="N", help="number of shards of the queue, or auto (default: none)"),
    flag("--no-scan", "list only queues that spark_bull has used; skips the scan of all keys"),
)
COMMON: Final = (*CONNECTION, flag("--json", "print JSON"))


ID: Final = argument("id", help="id of the job")
IDS: Final = argument("ids", metavar="id", nargs="*", help="ids of jobs")
GROUP: Final = argument("--group", metavar="NAME", help="only for this group of jobs, see Worker(group=...)")
QUEUES: Final = argument("queues", metavar="queue", nargs="+", help="names or globs of queues")
YES: Final = flag("--yes", "do not ask for confirmation")


GUARDING: Final = (
    repeated(
        "--guard",
        "CONDITION",
        'pause a queue while its jobs fail: "failedRate > 0.2 over 1m", "failed > 50 over 5m"',
        dest="pause_when",
    ),
    duration(
        "--resume-after", "time until a guard resumes the queue (default: 5m)", type=positive_seconds, default=300.0
    ),
)


def guards_of(args: Namespace, queues: Iterable[str]) -> list[Guard]:
    """The guards of a command for queues, names or globs. Raises OptionError."""
    return [Guard(queue, condition, args.resume_after) for queue in queues for condition in args.pause_when]
