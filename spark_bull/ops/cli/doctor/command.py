"""`spark-bull doctor`: runs all checks, prints what they find, and repairs.

A command in an advice can be pasted: it has the address of Redis and the login, without its secret.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from shlex import join, quote
from typing import Any, Final

from spark_bull.core.errors import ConnectionLost, OptionError, PermissionDenied, RedisUnavailable, SparkBullError
from spark_bull.core.keys import QueueKeys
from spark_bull.core.options.table import ReadOptions
from spark_bull.core.queue.handle.handle import QueueHandle, open_handle
from spark_bull.core.queue.monitor.find import exists, is_glob, matches, select_queues
from spark_bull.core.store.connection import Connection
from spark_bull.ops.cli.arguments import YES, argument, flag
from spark_bull.ops.cli.command import Exit, Output, command, confirm, options_of
from spark_bull.ops.cli.doctor import machine, queues, server, verb_commands
from spark_bull.ops.cli.doctor.finding import Finding, Level, problem, unchecked
from spark_bull.ops.cli.doctor.queues import leftovers, payloads
from spark_bull.ops.cli.doctor.server import VERBS, Server, granting, rights
from spark_bull.ops.cli.status import PROBLEMS, WARNINGS, NotFound
from spark_bull.ops.cli.tables import one_line

#: A secret in a URL: between `:` and `@`, or as a setting.
_SECRET: Final = re.compile(r"(://[^:@/\s]*:)[^@/\s]*(?=@)|([?&]password=)[^&\s]*")
#: What stands for it: redis-cli reads the password from this variable, too.
_VARIABLE: Final = "$REDISCLI_AUTH"


def with_address(advice: str, connection: Connection) -> str:
    """Adds the address of the server, and the login, to calls of redis-cli. Only an administrator may change users."""
    if "redis-cli " not in advice:
        return advice
    settings = connection.arguments
    where = ["-s", settings["path"]] if "path" in settings else ["-h", settings["host"], "-p", str(settings["port"])]
    if connection.settings.url.startswith("rediss"):
        where.append("--tls")
    if settings.get("db"):
        where += ["-n", str(settings["db"])]
    login = ["--user", settings["username"]] if settings.get("username") else []
    login += ["--askpass"] if settings.get("password") else []
    advice = advice.replace("redis-cli ACL ", f"{join(['redis-cli', *where])} ACL ")
    return re.sub(r"redis-cli (?=[A-Z])", lambda _: f"{join(['redis-cli', *where, *login])} ", advice)


def with_connection(advice: str, args: Namespace) -> str:
    """Adds the given arguments of the connection to calls of spark-bull."""
    given = [f"--{name} {quote(value)}" for name in ("prefix", "protocol") if (value := getattr(args, name))]
    if args.url is not None:
        hidden = _SECRET.sub(lambda secret: f"{secret[1] or secret[2]}{_VARIABLE}", args.url)
        given.insert(0, f"--url {quote(args.url)}" if hidden == args.url else f'--url "{hidden}"')
    return re.sub(r"\bspark-bull (?=[a-z])", lambda _: " ".join(["spark-bull", *given, ""]), advice)


#: The checks, by their names in the report. Checks of a queue come once per queue.
MACHINE: Final = {
    "java": machine.java,
    "python": machine.python,
    "packages": machine.packages,
    "pyspark": machine.compiled_pyspark,
}
SERVER: Final = {
    "version": server.server_version,
    "persistence": server.persistence,
    "eviction": server.eviction,
    "memory": server.memory,
    "replication": server.replication,
    "clock": server.clock,
}
_WITHOUT_INFO: Final = frozenset({"clock"})
QUEUE: Final = {
    "dialect": queues.dialect,
    "state": queues.state,
    "writes": queues.writes,
    "stalled": queues.stalled,
    "overdue": queues.overdue,
    "schedulers": queues.schedulers,
    "events": queues.events,
    "damaged": queues.damaged,
    "payloads": payloads,
}


def examine(
    options: ReadOptions, names: Sequence[str], verbs: Sequence[str], *, removes_orphans: bool = False
) -> Iterator[Finding]:
    """Yields the findings one by one. names: names or globs of queues. Without Redis, only of this machine."""
    for check, of_machine in MACHINE.items():
        yield from _results(check, None, of_machine)
    connection = Connection(options.redis)
    try:
        try:
            nodes = connection.primaries()
        except PermissionDenied as error:
            lacking = [f"+{name}" for name in verb_commands.COMMANDS["cluster"].split()]
            advice = with_address(granting(connection, lacking), connection)
            yield replace(problem(str(error), advice), check="rights")
            return
        for node in nodes:
            for finding in _of_server(Server(node, node.server_info(), options.prefix), verbs):
                yield finding if len(nodes) == 1 else replace(finding, found=f"{node.where}: {finding.found}")
        handles, found = [], select_queues(connection, options.prefix, names)
        for name in names:
            if name != "*" and is_glob(name) and not matches(found, name):
                missing = f"no such queue: none matches {name} (prefix {options.prefix})"
                yield replace(problem(missing, "spark-bull queues"), check="dialect", queue=name)
        for queue in found:
            try:
                handles.append(_open_handle(options, queue))
            except SparkBullError as error:
                if isinstance(error, ConnectionLost):
                    raise
                yield replace(problem(str(error), "spark-bull queues"), check="dialect", queue=queue)
        for handle in handles:
            for check, of_queue in QUEUE.items():
                yield from _results(check, handle.keys.queue, partial(of_queue, handle), connection)
        yield from leftovers(handles, removes=removes_orphans)
    except PermissionDenied as error:
        yield replace(unchecked(str(error)), check="queues")
    except OptionError as error:
        yield replace(problem(str(error), "name the queues: spark-bull doctor QUEUE …"), check="queues")
    except ConnectionLost as error:
        is_down = isinstance(error, RedisUnavailable)
        advice = "start Redis, check its log, or give another --url" if is_down else ""
        yield replace(problem(str(error), advice), check="redis")


def _of_server(server: Server, verbs: Sequence[str]) -> Iterator[Finding]:
    """The findings about one server."""
    for check, of_server in SERVER.items():
        if server.info or check in _WITHOUT_INFO:
            yield from _results(check, None, partial(of_server, server), server.connection)
        else:
            yield replace(unchecked("INFO is denied to this user"), check=check)
    yield from _results("rights", None, partial(rights, server, verbs), server.connection)


def _results(
    check: str, queue: str | None, run: Callable[[], Iterable[Finding]], connection: Connection | None = None
) -> Iterator[Finding]:
    """The findings of a check, about a queue if one is given. connection: of the server that it asks, if any."""
    found: list[Finding] = []
    try:
        found += run()
    except PermissionDenied as error:
        found.append(unchecked(str(error)))
    except ConnectionLost:
        raise
    except SparkBullError as error:
        found.append(problem(str(error), "see docs/reference/messages.md"))
    for finding in found:
        advice = finding.advice if connection is None else with_address(finding.advice, connection)
        yield replace(finding, check=check, queue=queue, advice=advice)


def _open_handle(options: ReadOptions, queue: str) -> QueueHandle:
    """Raises SparkBullError if the queue does not exist, or has another dialect."""
    handle = open_handle(options, queue)
    if not exists(handle.connection, handle.keys):
        raise NotFound(f"no such queue: {queue} (prefix {options.prefix})")
    return handle


#: Exit status by the worst finding.
_STATUS: Final[dict[Level, int]] = {"ok": 0, "unchecked": 0, "warning": WARNINGS, "problem": PROBLEMS}
#: Time for which calls are retried: an operator waits for the report.
_RETRY_MS: Final = 1_000


def _doctor(args: Namespace) -> Output:
    if args.remove_orphans and not args.fix:
        raise OptionError("expected --remove-orphans only with --fix, which makes repairs")
    options = options_of(args, retryMs=_RETRY_MS)
    queues = _existing(options, args.queues) if args.logical else args.queues
    findings: list[Finding] = []
    for finding in examine(options, queues, args.rights or VERBS, removes_orphans=args.remove_orphans):
        findings.append(replace(finding, advice=with_connection(finding.advice, args)))
        if not args.json:
            print("\n".join(_lines(findings[-1])), flush=True)
    rows = [_row(finding) for finding in findings]
    for number, done in _repair(args, findings) if args.fix else ():
        rows[number]["repaired"] = done
        if not args.json:
            print(one_line(f"repaired  {findings[number].queue or ''} {findings[number].check}: {done}"), flush=True)
    levels = Counter(finding.level for finding in findings)
    summary = ", ".join(f"{count} {level}" for level, count in levels.items())
    return Exit(rows if args.json else summary, max(_STATUS[level] for level in levels))


def _existing(options: ReadOptions, shards: Sequence[str]) -> list[str]:
    """The shards that exist: one without jobs may be to come."""
    connection = Connection(options.redis)
    return [name for name in shards if exists(connection, QueueKeys(name, options.prefix))]


def _row(finding: Finding) -> dict[str, Any]:
    row = {name: getattr(finding, name) for name in ("check", "queue", "level", "found")}
    return {**row, "advice": finding.advice or None, "repaired": None}


def _lines(finding: Finding) -> list[str]:
    about = f"{finding.queue} {finding.check}" if finding.queue else finding.check
    advice = [f"{'':10}→ {finding.advice}"] if finding.advice else []
    return [*map(one_line, (f"{finding.level:9} {about}: {finding.found}", *advice))]


def _repair(args: Namespace, findings: Sequence[Finding]) -> list[tuple[int, str]]:
    """Makes the repairs, after confirmation; returns numbers of findings, and what was done."""
    found = [(number, finding, finding.repair) for number, finding in enumerate(findings) if finding.repair]
    if not found:
        return []
    what = "; ".join(f"{finding.queue}: {repair.what}" for _, finding, repair in found)
    confirm(args, f"repairs: {what}", "yes")
    return [(number, repair.run()) for number, _, repair in found]


COMMANDS: Final = (
    command(
        "doctor",
        "check this machine, Redis and queues, and repair",
        "doctor mail --fix",
        _doctor,
        argument("queues", metavar="queue", nargs="*", default=["*"], help="names or globs (default: all)"),
        flag("--fix", "after a question: finish interrupted writes, return stalled jobs, trim events"),
        flag("--remove-orphans", "with --fix: also remove jobs that are in no state"),
        argument(
            "--rights",
            action="append",
            choices=VERBS,
            metavar="VERB",
            help=f"what the user is for: {', '.join(VERBS)}",
        ),
        YES,
        of_queue=False,
    ),
)
