"""The arguments of commands, as data for argparse, and the types that several commands share."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentTypeError
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, NoReturn

from spark_bull.core.options.values import priority
from spark_bull.ops.cli.times import milliseconds


class Argument(NamedTuple):
    """What `ArgumentParser.add_argument` gets."""

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
    return argument(name, metavar="TIME", help=help, **{"type": milliseconds, **settings})


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


ID: Final = argument("id", help="id of the job")
IDS: Final = argument("ids", metavar="id", nargs="*", help="ids of jobs")
GROUP: Final = argument("--group", metavar="NAME", help="only for this group of jobs, see Worker(group=...)")
QUEUES: Final = argument("queues", metavar="queue", nargs="+", help="names or globs of queues")
YES: Final = flag("--yes", "do not ask for confirmation")
