"""The tables that the soak prints."""

from __future__ import annotations

from collections.abc import Iterator

from tests.proof.soak.accounts import EXPIRED
from tests.proof.soak.memory import EXPIRE, RESIDENT, USED
from tests.proof.soak.run import Report

#: What the accounts are named in the table.
TITLES = {
    "write": "`df.write`",
    "stream": "`df.writeStream`",
    "least": "`delivery=at-least-once`",
    "unique": "`uniqueBy`",
    "flow": "a column `children`",
    "batch": "`onFinish`",
    "sequence": "`sequenceBy`",
    "most": "`delivery=at-most-once`",
    "added": "`BullQueue.add_many`",
    "manage": "`mode=manage`, `action=move`",
    "expire": "a column `expireAt`",
    "group": "`group` with `concurrency`",
    "retry": "jobs that fail, once or always",
    "schedule": "`mode=schedule`",
    "frame": "`df.write` of a JVM",
    "frames": "`df.writeStream` of a JVM",
}
#: Grow for as long as receipts (an hour) and records of writes (30 days) are kept.
GROWING = (EXPIRE, USED, RESIDENT)
OUTCOMES = ("completed", "failed", EXPIRED)


def lines(report: Report) -> Iterator[str]:
    yield "| fault | times |\n|---|---|"
    yield from (f"| {name} | {times} |" for name, times in report.faults.items())
    yield "\n| party | starts |\n|---|---|"
    yield from (f"| {name} | {times} |" for name, times in report.starts.items())
    yield "\n| jobs of | dispatched | deduplicated | completed | failed | expired | wrong outcome | books |"
    yield "|---" * 8 + "|"
    for name, one in report.balance.accounts.items():
        outcomes = " | ".join(f"{one.outcomes[outcome]:,}" for outcome in OUTCOMES)
        books = str(one.cell) if one.balances else f"do not balance, {one.cell}"
        yield f"| {TITLES[name]} | {one.dispatched:,} | {one.deduplicated:,} | {outcomes} | {one.wrong} | {books} |"
    yield f"\nworkers: {report.balance.worked}\nresults: {report.balance.collected}"
    yield "\n| memory of | mean, MB | change over the run, MB per hour |\n|---|---|---|"
    yield from (f"| {name} | {slope or '– | –'} |" for name, slope in sorted(report.slopes.items()))
    yield "\n| kept in Redis at the end | keys | kB |\n|---|---|---|"
    yield from (f"| {kind} | {keys:,} | {size / 1024:,.0f} |" for kind, (keys, size) in sorted(report.kept.items()))


def broken(report: Report) -> list[str]:
    judged = {name: slope for name, slope in report.slopes.items() if slope and name not in GROWING}
    growing = [f"memory of {name} grows" for name, slope in judged.items() if slope.grows]
    return [f"books of {name}" for name in report.balance.broken] + growing
