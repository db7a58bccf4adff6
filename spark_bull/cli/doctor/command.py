"""`spark-bull doctor`: prints what the checks find, and repairs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from spark_bull.cli.command import Command, Ended, Output, options_of
from spark_bull.cli.confirm import add_yes_argument, confirm
from spark_bull.cli.doctor.examine import Result, examine
from spark_bull.cli.doctor.finding import Level
from spark_bull.cli.doctor.rights import VERBS
from spark_bull.errors import OptionError

#: Exit status by the worst finding.
_STATUS: Final[dict[Level, int]] = {"ok": 0, "unchecked": 0, "warning": 1, "problem": 2}
#: Time for which calls are retried: an operator waits for the report.
_RETRY_MS: Final = 1_000


def _doctor(args: Namespace) -> Output:
    if args.remove_orphans and not args.fix:
        raise OptionError("expected --remove-orphans only with --fix, which makes repairs")
    options = options_of(args, retryMs=_RETRY_MS)
    lines: list[dict[str, Any]] = []
    results = []
    for result in examine(options, args.queues, args.rights or VERBS, removes_orphans=args.remove_orphans):
        results.append(result)
        lines.append(_row(result))
        if not args.json:
            print("\n".join(_lines(result)), flush=True)
    if args.fix:
        for number, done in _repair(args, results):
            lines[number]["repaired"] = done
            if not args.json:
                print(f"repaired  {results[number].queue or ''} {results[number].check}: {done}", flush=True)
    levels = Counter(result.finding.level for result in results)
    status = max(_STATUS[level] for level in levels)
    summary = ", ".join(f"{count} {level}" for level, count in levels.items())
    return Ended(lines if args.json else summary, status)


def _row(result: Result) -> dict[str, Any]:
    finding = result.finding
    return {
        "check": result.check,
        "queue": result.queue,
        "level": finding.level,
        "found": finding.found,
        "advice": finding.advice or None,
    }


def _lines(result: Result) -> list[str]:
    finding, about = result.finding, f"{result.queue} {result.check}" if result.queue else result.check
    advice = [f"{'':10}→ {finding.advice}"] if finding.advice else []
    return [f"{finding.level:9} {about}: {finding.found}", *advice]


def _repair(args: Namespace, results: Sequence[Result]) -> list[tuple[int, str]]:
    """Makes the repairs, after confirmation; returns numbers of results, and what was done."""
    found = [(number, result.finding.repair) for number, result in enumerate(results) if result.finding.repair]
    if not found:
        return []
    what = "; ".join(f"{results[number].queue}: {repair.what}" for number, repair in found)
    confirm(args, f"repairs: {what}", "yes")
    return [(number, repair.run()) for number, repair in found]


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("queues", metavar="queue", nargs="*", default=["*"], help="names or globs (default: all)")
    parser.add_argument(
        "--fix",
        action="store_true",
        help="after a question: finish interrupted writes, return stalled jobs, trim events",
    )
    parser.add_argument(
        "--remove-orphans", action="store_true", help="with --fix: also remove jobs that are in no state"
    )
    parser.add_argument(
        "--rights", action="append", choices=VERBS, metavar="VERB", help=f"what the user is for: {', '.join(VERBS)}"
    )
    add_yes_argument(parser)


DOCTOR: Final = Command(
    "doctor",
    "check this machine, Redis and queues; exit status 0: all is well, 1: warnings, 2: problems",
    "doctor mail --fix",
    _doctor,
    _add_arguments,
    of_queue=False,
)
