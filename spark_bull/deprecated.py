"""Old names of the API: they work until version 2.0, and each warns once. Those of options are in options/table.py."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Final, TypeVar

_T = TypeVar("_T")
_C = TypeVar("_C", bound=Callable[..., Any])

#: New names by the old ones: of what a module or class has, and of arguments by the name of their functions or class.
NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "spark_bull": {"results": "write_results"},
    "BullQueue": {
        "get_job": "job",
        "get_children_values": "children_values",
        "get_children_failures": "children_failures",
        "get_dependencies": "dependencies",
        "get_dependencies_count": "dependency_counts",
        "get_deduplication_job_id": "deduplication_job_id",
        "get_scheduler": "scheduler",
    },
    "DelayedError": {"delay": "delay_ms"},
    "RateLimitError": {"duration": "duration_ms"},
}
ARGUMENTS: Final[Mapping[str, Mapping[str, str]]] = {
    "change_delay": {"delay": "delay_ms"},
    "stop": {"grace_s": "timeout_s"},
    "add": {"expire_after": "expire_after_ms"},
    "NewJob": {"expire_after": "expire_after_ms"},
    "FlowJob": {"expire_after": "expire_after_ms"},
    "DelayedError": {"delay": "delay_ms"},
    "RateLimitError": {"duration": "duration_ms"},
}
#: Of the keys of mappings, by the name of the argument.
KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "ageing": {"after": "after_ms"},
    "opts": {"expireAfter": "expireAfterMs"},
}
#: New words of the command line by the old ones, which stand after `spark-bull` in a command.
WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "schedules": {"schedules": "schedulers"},
    "work": {"--grace": "--stop-timeout"},
    "add": {"--lock-ms": "--lock"},
}

log = logging.getLogger("spark_bull")

_warned: Final[set[str]] = set()


def warn_renamed(old: str, new: str) -> None:
    """Warns that `old` is called `new`, unless it has done so in this process; names the line that uses `old`.

    Options of Spark come from a module of pyspark, where Python shows no DeprecationWarning: these are logged.
    """
    if old in _warned:
        return
    _warned.add(old)
    frame = sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(("spark_bull", "importlib")):
        frame = frame.f_back
    text = f"`{old}` is called `{new}` now: the old name works until 2.0"
    module = frame.f_globals.get("__name__", "")
    if module.partition(".")[0] == "pyspark":
        log.warning("%s", text)
        return
    warnings.warn_explicit(text, DeprecationWarning, frame.f_code.co_filename, frame.f_lineno, module)


def new_name(owner: str, name: str) -> str | None:
    """Returns the new name of what a module or class called `name`, with a warning; None if it is no old name."""
    new = NAMES[owner].get(name)
    if new is not None:
        warn_renamed(f"{owner}.{name}", f"{owner}.{new}")
    return new


def with_old_names(kind: type[_T]) -> type[_T]:
    """Decorates a class that has a row in NAMES. Type checkers and `dir` know the new names only."""

    def __getattr__(self: _T, name: str) -> Any:
        new = new_name(kind.__name__, name)
        if new is None:
            raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}", name=name, obj=self)
        return getattr(self, new)

    kind.__getattr__ = __getattr__  # type: ignore[attr-defined]
    return kind


def with_old_arguments(function: _C) -> _C:
    """Decorates a function, or a class, that has a row in ARGUMENTS."""
    if isinstance(function, type):
        function.__init__ = with_old_arguments(function.__init__)  # type: ignore[misc]
        return function
    owner = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    names = ARGUMENTS[owner]

    @wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        for old in names.keys() & given.keys():
            if names[old] in given:
                raise TypeError(f"{owner}() got `{names[old]}` twice: `{old}` is its old name")
            warn_renamed(f"{owner}({old})", f"{owner}({names[old]})")
            given[names[old]] = given.pop(old)
        return function(*args, **given)

    return call  # type: ignore[return-value]


def with_new_keys(argument: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a mapping that has a row in KEYS with new keys in place of the old ones."""
    names = KEYS[argument]
    for old in names.keys() & given.keys():
        warn_renamed(f"{argument}[{old}]", f"{argument}[{names[old]}]")
    return {names.get(name, name): value for name, value in given.items()}


def with_new_words(command: str | None, argv: Sequence[str]) -> list[str]:
    """Returns the arguments of a command line in new words; says on standard error which are old."""
    words = list(argv)
    for old, new in WORDS.get(command or "", {}).items():
        for position, word in enumerate(words):
            if word.partition("=")[0] == old:
                print(f"spark-bull: `{old}` is called `{new}` now: the old name works until 2.0", file=sys.stderr)
                words[position] = new + word.removeprefix(old)
                break
    return words
