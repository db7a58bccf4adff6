"""Next times of cron patterns by the parsers of Node, and random patterns."""

from __future__ import annotations

import json
import subprocess
from datetime import datetime, timezone
from random import Random
from typing import Any

from tests.support.node import NODE_DIRECTORY

HOUR = 3_600_000
DAY = 24 * HOUR
#: Time zones, and their clock changes (UTC). In Cairo, midnight is skipped.
CHANGES = {
    "Europe/Berlin": ["2026-03-29T01:00", "2026-10-25T01:00"],
    "America/New_York": ["2026-03-08T07:00", "2026-11-01T06:00"],
    "Africa/Cairo": ["2026-04-23T22:00", "2026-10-29T21:00"],
    "Australia/Sydney": ["2026-10-03T16:00", "2026-04-04T16:00"],
}
#: A pattern, a zone, and the time in ms after which the next time is computed.
Question = tuple[str, str | None, int]


def next_times(alias: str, questions: list[Question]) -> list[Any]:
    """The answers of the parser that a Node package uses: ms, None for no next time, {"error": message}."""
    done = subprocess.run(
        ["node", "next_times.js", alias],
        cwd=NODE_DIRECTORY,
        input=json.dumps(questions) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    answers: list[Any] = json.loads(done.stdout)
    return answers


def around_changes(random: Random, pattern: str) -> list[Question]:
    """The pattern in each zone, at a time around a change of its clocks."""
    return [(pattern, zone, _near(random, zone)) for zone in CHANGES]


def _near(random: Random, zone: str) -> int:
    change = datetime.fromisoformat(random.choice(CHANGES[zone])).replace(tzinfo=timezone.utc)
    near = int(change.timestamp() * 1000) + random.randint(*random.choice([(-3 * HOUR, 3 * HOUR), (-2 * DAY, DAY)]))
    return near - near % random.choice([1, 1000, 1000, HOUR])


def random_pattern(random: Random) -> str:
    """A pattern of five or six fields; hours are likely to be those at which clocks are changed."""
    hours = [_field(random, 0, 23), random.choice(["0", "1", "2", "3", "1-3", "2,3", "0-2", "1,2", "23", "*/2", "*"])]
    dates = ["*", "*", "*", "L", "15,L", _field(random, 1, 31)]
    weekdays = [
        "*",
        "*",
        "*",
        "MON",
        "mon-fri",
        "5L",
        "5#2",
        "1#1",
        "?",
        "0-6",
        "1-7",
        "7",
        "1,3,5",
        _field(random, 0, 6),
    ]
    months = ["*", "*", "*", "mar,oct", "JAN-MAR", _field(random, 1, 12)]
    fields = [_field(random, 0, 59), *(random.choice(choice) for choice in (hours, dates, months, weekdays))]
    return " ".join([_field(random, 0, 59), *fields] if random.random() < 0.4 else fields)


def _field(random: Random, low: int, high: int) -> str:
    """A field without duplicate numbers, which the newer parser refuses."""
    first = random.randint(low, high)
    last = random.randint(first, high)
    some = sorted(random.sample(range(low, high + 1), random.randint(2, 4)))
    forms = ["*", f"*/{random.randint(2, 7)}", f"{first}", f"{first}-{last}", f"{first}-{last}/{random.randint(1, 5)}"]
    return random.choice([*forms, f"{first}/{random.randint(2, 6)}", ",".join(map(str, some))])
