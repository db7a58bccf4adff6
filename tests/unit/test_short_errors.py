"""Errors of this package leave its public methods with one frame of it, and with causes without frames of it."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

import spark_bull
from spark_bull import BullQueue
from spark_bull.errors import OptionError, ScriptError
from spark_bull.options.parse import parse_options
from spark_bull.options.table import READ
from spark_bull.short_errors import short_errors
from spark_bull.store.errors import translated
from spark_bull.store.settings import settings_of

PACKAGE = str(Path(spark_bull.__file__).parent)


@short_errors
class Raising:
    def refuse(self, error: Exception) -> None:
        try:
            raise ValueError("the cause")
        except ValueError as cause:
            raise error from cause

    def items(self, error: Exception) -> Iterator[int]:
        yield 1
        self.refuse(error)


def printed(error: BaseException) -> list[str]:
    return "".join(traceback.format_exception(error)).splitlines()


def test_an_error_has_one_frame_of_the_package(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "spark_bull")
    with pytest.raises(OptionError) as raised:
        BullQueue("q", url="redis://127.0.0.1:1", retry_ms="soon")  # type: ignore[arg-type]
    lines = printed(raised.value)
    assert sum(PACKAGE in line for line in lines) == 1
    assert lines[-1].startswith("spark_bull.errors.OptionError: expected `retry_ms`")
    assert "in __init__" in caplog.text, "the whole trace is logged at DEBUG"


def test_an_unreachable_redis_is_an_error_whose_cause_is_that_of_redis_py_without_its_trace() -> None:
    with pytest.raises(spark_bull.ConnectionLost) as raised:
        BullQueue("q", url="redis://127.0.0.1:1", retry_ms=0)
    lines = printed(raised.value)
    assert sum(PACKAGE in line for line in lines) == 1
    assert isinstance(raised.value.__cause__, redis.ConnectionError)
    assert isinstance(raised.value.__cause__.__context__, ConnectionRefusedError)
    assert sum(line.startswith("Traceback") for line in lines) == 1
    assert lines[0].startswith("redis.exceptions.ConnectionError: Error 111 connecting to 127.0.0.1:1")
    assert lines[-1].startswith("spark_bull.errors.RedisUnavailable: expected Redis at redis://127.0.0.1:1, got none: ")


def test_errors_while_items_are_read_are_short_too() -> None:
    items = Raising().items(OptionError("no"))
    assert next(items) == 1
    with pytest.raises(OptionError) as raised:
        next(items)
    lines = printed(raised.value)
    assert isinstance(raised.value.__cause__, ValueError)
    assert [line.strip() for line in lines if "the cause" in line] == [
        'raise ValueError("the cause")',
        "ValueError: the cause",
    ], "the frame of the user's code"
    assert "in items" not in "".join(lines)


@pytest.mark.parametrize("error", [ScriptError("a defect"), KeyError("another")])
def test_other_errors_keep_their_trace_and_cause(error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        Raising().refuse(error)
    assert isinstance(raised.value.__cause__, ValueError)
    assert "in refuse" in "".join(printed(raised.value))


def test_the_cause_of_a_refused_command_does_not_tell_its_arguments() -> None:
    cause = redis.ResponseError("unknown command 'AUTH', with args beginning with: 's3cret' ")
    ours = translated(cause, settings_of(parse_options({"url": "redis://localhost", "queue": "q"}, READ)), "a command")
    assert "the command AUTH, which is disabled or renamed" in str(ours)
    assert str(cause) == "unknown command 'AUTH'"
