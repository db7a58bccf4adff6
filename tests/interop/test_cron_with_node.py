"""Cron patterns have the same next times as in the parsers of the Node libraries, also around clock changes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timezone
from functools import cache
from random import Random
from typing import Any

import pytest

from spark_bull.core.dialects.schedule.cron import next_time
from spark_bull.core.errors import PatternError
from tests.support.jobs import DAY, HOUR
from tests.support.node import NODE_DIRECTORY

#: Packages, and whether their parser is the older one. BullMQ 5 has the parser of Bull 4.
PARSERS = {"bull-4.16.5": True, "bullmq-6.7.0": False}
each_parser = pytest.mark.parametrize("alias", PARSERS)
#: Time zones, and their clock changes (UTC). In Cairo, midnight is skipped.
CHANGES = {
    "Europe/Berlin": ["2026-03-29T01:00", "2026-10-25T01:00"],
    "America/New_York": ["2026-03-08T07:00", "2026-11-01T06:00"],
    "Africa/Cairo": ["2026-04-23T22:00", "2026-10-29T21:00"],
    "Australia/Sydney": ["2026-10-03T16:00", "2026-04-04T16:00"],
}
#: A pattern, a zone, and the time in ms after which the next time is computed.
Question = tuple[str, str | None, int]


#: Unusual patterns.
SYNTAX = [
    *("@yearly", "@monthly", "@weekly", "@daily", "@hourly", "* * * *", "15", "  5   4 * * * "),
    *("*/60 * * * *", "*/100 * * * *", "0 0 31 * *", "0 0 29 2 *", "0 0 L * *", "0 0 L 2 *", "0 0 1,L * *"),
    *("0 0 ? * ?", "0 0 * * 7", "0 0 * * 0", "0 0 * * sun", "0 0 * * 5-7", "0 0 * * 1-7/2", "0 0 * * */3"),
    *("0 0 * * 1L", "0 0 * * 1,5L", "0 0 * * 7L", "0 0 * * 1#5", "0 0 * * fri#3", "0 0 13 * 5", "0 0 13 * 1-7"),
    *("0 0 1-31 * 1", "0 0 13 * 0-6", "0 0 13 * *", "0 0 * * 1", "0 0 10 * 5#2", "0 0 L * 1", "0 0 15,L * 1#1"),
    *("0 0 1 jan *", "0 0 1 JAN,Jul *", "0 0 1 jan-mar *", "5/20 * * * *", "0 5/7 * * *", "0 0 5/7 * *"),
    *("30 2 * * *", "30 2 29 3 *", "0 */6 * * *", "59 59 23 31 12 *", "* * * * * *", "0 0 0 1 1 1"),
]
#: Refused by both parsers, and by ours.
REFUSED = ["", "at full moon", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "5-1 * * * *"]
REFUSED += ["* * * * 1#6", "* * * * 1#12", "1 2 3 4 5 6 7", "*/0 * * * *", "1,,2 * * * *", "* * * foo *"]
REFUSED += ["0 0 * * L", "0 0 W * *"]


#: The answers to questions: ms, None for no next time, {"error": message}.
Ask = Callable[[list[Question]], list[Any]]


@pytest.fixture(scope="module")
def parser_of(node_packages: None) -> Iterator[Callable[[str], Ask]]:
    """The parser that a Node package uses."""
    with ExitStack() as running:

        @cache
        def start(alias: str) -> Ask:
            command, pipe = ["node", "next_times.js", alias], subprocess.PIPE
            process = subprocess.Popen(command, cwd=NODE_DIRECTORY, stdin=pipe, stdout=pipe, text=True)
            parser = running.enter_context(process)

            def ask(questions: list[Question]) -> list[Any]:
                print(json.dumps(questions), file=parser.stdin, flush=True)
                answers: list[Any] = json.loads(parser.stdout.readline())
                return answers

            return ask

        yield start


@pytest.fixture
def ask(alias: str, parser_of: Callable[[str], Ask]) -> Ask:
    return parser_of(alias)


def check(alias: str, ask: Ask, questions: list[Question]) -> list[Any]:
    """Checks that all valid answers of Node are also ours, and returns them."""
    answers = zip(questions, ask(questions), strict=True)
    known = [(asked, answer) for asked, answer in answers if not isinstance(answer, dict)]
    assert len(known) > len(questions) / 2
    assert [(asked, answer, found) for asked, answer in known if (found := ours(alias, asked)) != answer] == []
    return [answer for _, answer in known]


def ours(alias: str, question: Question) -> int | str | None:
    pattern, zone, after = question
    try:
        return next_time(pattern, after, zone, classic=PARSERS[alias])
    except PatternError as error:
        return str(error)


def around_changes(random: Random, *patterns: str) -> list[Question]:
    """Each pattern in each zone, at a time around a change of its clocks."""
    return [(pattern, zone, _near(random, zone)) for pattern in patterns for zone in CHANGES]


def _near(random: Random, zone: str) -> int:
    change = datetime.fromisoformat(random.choice(CHANGES[zone])).replace(tzinfo=timezone.utc)
    near = int(change.timestamp() * 1000) + random.randint(*random.choice([(-3 * HOUR, 3 * HOUR), (-2 * DAY, DAY)]))
    return near - near % random.choice([1, 1000, 1000, HOUR])


def random_pattern(random: Random) -> str:
    """A pattern of five or six fields; hours are likely to be those at which clocks are changed."""
    hours = [_field(random, 0, 23), random.choice(["0", "1", "2", "3", "1-3", "2,3", "0-2", "1,2", "23", "*/2", "*"])]
    dates = ["*", "*", "*", "L", "15,L", _field(random, 1, 31)]
    weekdays = ["*", "*", "*", "MON", "mon-fri", "5L", "5#2", "1#1", "?", "0-6", "1-7", "7", "1,3,5"]
    weekdays.append(_field(random, 0, 6))
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


@each_parser
def test_patterns_have_the_same_meaning_as_in_node(alias: str, ask: Ask) -> None:
    check(alias, ask, around_changes(Random(1), *SYNTAX))


@each_parser
def test_patterns_that_node_refuses_are_refused(alias: str, ask: Ask) -> None:
    questions: list[Question] = [(pattern, "UTC", 1_790_000_000_000) for pattern in REFUSED]
    answers = zip(questions, ask(questions), strict=True)
    refused = [question for question, answer in answers if isinstance(answer, dict)]
    assert len(refused) > len(REFUSED) / 2
    assert [question for question in refused if not isinstance(ours(alias, question), str)] == []


#: Names of zones and fixed offsets. Node's offsets may be longer than a day.
ZONES: list[Any] = [
    *("UTC", "utc", "GMT", "local", "System", "default", "", "europe/berlin", "US/eastern", "Etc/GMT+5", "EST"),
    *("UTC+25", "UTC-99:99", "utc+5:30", "UTC-0:30", "UTC+00", 90, -90.5, 100_000, 0, "UTC+030", "GMT+5", "+05:30"),
    *("Mars/Olympus", " UTC", "z", "UTC+5:3", "../UTC", "U" * 5_000, "UTC+" + "9" * 5_000),
]
DIGITS = "0" * 300 + "5"
HUGE = "9" * 300
#: Numbers of hundreds of digits, of which some mean something. The newer parser refuses more than 1,024 characters.
LONG_PATTERNS = [f"{DIGITS} 3 * * *", f"*/{HUGE} * * * *", f"{DIGITS}-7/{DIGITS} 3 * * *"]
LONG_PATTERNS += [f"{HUGE} * * * *", f"1-{HUGE} * * * *", f"0 0 * * 1#{HUGE}", "٣ 3 * * *"]
#: The last times of Node, and of Python.
LATE = [10**18, 8_640_000_000_000_000, 253_402_300_799_999, -(10**15)]


@each_parser
def test_zones_and_numbers_of_any_size_have_the_meaning_of_node_or_are_refused(alias: str, ask: Ask) -> None:
    noon = 1_790_000_000_000
    questions: list[Question] = [("0 3 * * *", zone, noon) for zone in ZONES]
    questions += [(pattern, "UTC", noon) for pattern in LONG_PATTERNS]
    answers = check(alias, ask, questions)
    assert len(answers) == len([question for question in questions if not isinstance(ours(alias, question), str)])
    assert all(isinstance(ours(alias, ("0 3 * * *", zone, late)), str) for late in LATE for zone in ("UTC", 10**9))
    longer = [pattern.replace(DIGITS[:300], DIGITS[:300] * 20).replace(HUGE, HUGE * 20) for pattern in LONG_PATTERNS]
    assert [ours(alias, (pattern, "UTC", noon)) for pattern in longer[:3]] == answers[-3:]
    assert all(isinstance(ours(alias, (pattern, "UTC", noon)), str) for pattern in longer[3:])


@pytest.mark.parametrize(("seed", "patterns"), [(7, 60), pytest.param(11, 2_000, marks=pytest.mark.soak)])
@each_parser
def test_random_patterns_have_the_same_next_time_as_in_node(alias: str, ask: Ask, seed: int, patterns: int) -> None:
    random = Random(seed)
    check(alias, ask, around_changes(random, *(random_pattern(random) for _ in range(patterns))))


@each_parser
def test_next_times_across_clock_changes_are_as_in_node(alias: str, ask: Ask) -> None:
    """Each next time is the start of the next question."""
    questions = around_changes(Random(3), "30 2 * * *", "*/20 1-3 * * *", "0 * * * *", "15 0 * * *")
    for _ in range(6):
        due = check(alias, ask, questions)
        questions = [(pattern, zone, ms) for (pattern, zone, _), ms in zip(questions, due, strict=True)]
