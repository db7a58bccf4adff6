"""Unusual behaviour of processors, and the expected failed reasons of their jobs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from spark_bull.errors import DelayedError, RateLimitError
from spark_bull.model.jobs import RawJson


class MessageRaises(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message")


class MessageInterrupts(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class MessageIsNoText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


class NotesRaise(Exception):
    @property
    def __notes__(self) -> list[str]:
        raise SystemExit(1)


class Everything(BaseException):
    pass


class UnreadableDict(dict[str, Any]):
    def items(self) -> Any:
        raise KeyboardInterrupt


def raising(error: BaseException) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


def exiting() -> Any:
    sys.exit(3)


def recursing() -> Any:
    return recursing()


def stopped_iterator() -> Any:
    return next(iter(()))


def changed(error: BaseException, name: str, value: Any) -> Callable[[], Any]:
    """Raises an error with an attribute that was changed afterwards."""
    setattr(error, name, value)
    return raising(error)


def nested(depth: int) -> Any:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def chained() -> Any:
    try:
        raise MessageRaises
    except MessageRaises as error:
        raise ValueError("the second one") from error


#: By name: the function of a processor, and a pattern of the failed reason.
MISBEHAVIOURS: dict[str, tuple[Callable[[], Any], str]] = {
    "unpaired surrogate": (raising(ValueError("half \ud83d a sign")), "^half \ufffd a sign$"),
    "surrogates that belong together": (raising(ValueError("sign \ud83d\ude80")), "^sign 🚀$"),
    "message that raises": (raising(MessageRaises()), "^MessageRaises"),
    "message that interrupts": (raising(MessageInterrupts()), "^MessageInterrupts"),
    "message that is no text": (raising(MessageIsNoText()), "^MessageIsNoText"),
    "trace that can't be formatted": (raising(NotesRaise("kept")), "^kept$"),
    "cause that can't be formatted": (chained, "^the second one$"),
    "huge message": (raising(ValueError("x" * 5_000_000)), r"characters left out"),
    "message with a null character": (raising(ValueError("a\x00b")), "^a\x00b$"),
    "key error": (raising(KeyError("to")), "^KeyError: 'to'$"),
    "number as message": (raising(ValueError(3)), "^ValueError: 3$"),
    "empty message": (raising(AssertionError()), "^AssertionError$"),
    "cancelled": (raising(asyncio.CancelledError()), "^CancelledError$"),
    "keyboard interrupt": (raising(KeyboardInterrupt()), "^KeyboardInterrupt$"),
    "generator exit": (raising(GeneratorExit()), "^GeneratorExit$"),
    "stop iteration": (stopped_iterator, "^StopIteration$"),
    "system exit": (exiting, "^SystemExit: 3$"),
    "memory error": (raising(MemoryError()), "^MemoryError$"),
    "base exception": (raising(Everything("of its own")), "^of its own$"),
    "endless recursion": (recursing, "recursion"),
    "value that is no JSON": (lambda: {1, 2}, "that JSON can hold, got set"),
    "value that raises": (lambda: UnreadableDict(a=1), "that JSON can hold, got UnreadableDict: KeyboardInterrupt"),
    "value nested too deeply": (lambda: nested(100_000), "that JSON can hold, got list"),
    "value that is no number": (lambda: float("nan"), "that JSON can hold, got float"),
    "raw JSON that is no text": (lambda: RawJson(object()), "the text of RawJson to be a string"),  # type: ignore[arg-type]
    "raw JSON that is no Unicode": (lambda: RawJson('"\ud83d"'), "that JSON can hold, got RawJson"),
    "delay that is no number": (lambda: raising(DelayedError("soon"))(), "`delay_ms`"),  # type: ignore[arg-type]
    "delay changed to a text": (changed(DelayedError(5), "delay_ms", "soon"), "`delay_ms`"),
    "delay changed to no number": (changed(DelayedError(5), "delay_ms", float("nan")), "`delay_ms`"),
    "delay changed to nothing": (changed(DelayedError(5), "delay_ms", None), "`delay_ms`"),
    "time changed to one before all time": (changed(DelayedError(until=5), "until", -1), "`until`"),
    "rate limit changed beyond all time": (changed(RateLimitError(5), "duration_ms", 10**30), "`duration_ms`"),
    "rate limit changed to a text": (changed(RateLimitError(5), "duration_ms", "long"), "`duration_ms`"),
    "rate limit beyond all time": (lambda: raising(RateLimitError(10**30))(), "`duration_ms`"),
    "rate limit that is no number": (lambda: raising(RateLimitError(float("nan")))(), "`duration_ms`"),
}
