"""`spark-bull doctor`: prints what the checks find, and repairs."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from spark_bull.core.errors import OptionError
from spark_bull.core.keys import QueueKeys
from spark_bull.core.options.table import ReadOptions
from spark_bull.core.queue.monitor.find import exists
from spark_bull.core.store.connection import Connection
from spark_bull.ops.cli.arguments import YES, argument, flag
from spark_bull.ops.cli.command import Ended, Output, command, options_of
from spark_bull.ops.cli.confirm import confirm
from spark_bull.ops.cli.doctor.examine import examine
from spark_bull.ops.cli.doctor.finding import Finding, Level
from spark_bull.ops.cli.doctor.rights import VERBS
from spark_bull.ops.cli.tables import one_line

#: Exit status by the worst finding.
_STATUS: Final[dict[Level, int]] = {"ok": 0, "unchecked": 0, "warning": 1, "problem": 2}
#: Time for which calls are retried: an operator waits for the report.
_RETRY_MS: Final = 1_000


def _doctor(args: Namespace) -> Output:
    if args.remove_orphans and not args.fix:
        raise OptionError("expected --remove-orphans only with --fix, which makes repairs")
    options = options_of(args, retryMs=_RETRY_MS)
    queues = _existing(options, args.queues) if args.logical else args.queues
    findings: list[Finding] = []
    for finding in examine(options, queues, args.rights or VERBS, removes_orphans=args.remove_orphans):
        findings.append(finding)
        if not args.json:
            print("\n".join(_lines(finding)), flush=True)
    rows = [_row(finding) for finding in findings]
    for number, done in _repair(args, findings) if args.fix else ():
        rows[number]["repaired"] = done
        if not args.json:
            print(one_line(f"repaired  {findings[number].queue or ''} {findings[number].check}: {done}"), flush=True)
    levels = Counter(finding.level for finding in findings)
    summary = ", ".join(f"{count} {level}" for level, count in levels.items())
    return Ended(rows if args.json else summary, max(_STATUS[level] for level in levels))


def _existing(options: ReadOptions, shards: Sequence[str]) -> list[str]:
    """Those of some shards that exist: one without jobs may be to come."""
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


DOCTOR: Final = command(
    "doctor",
    "check this machine, Redis and queues; exit status 0: all is well, 1: warnings, 2: problems",
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
)
