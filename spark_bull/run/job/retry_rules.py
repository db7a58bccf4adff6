"""Retry rules: how often the job of an error may be attempted, by the class of the error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Final

from spark_bull.run.job.ending import Stated

#: Name of a class -> maximum attempts; 0: the job fails at once.
RetryRules = Mapping[str, int]

_HEADER: Final = "Traceback (most recent call last):\n"


def attempts_after(rules: RetryRules, error: BaseException) -> int | None:
    """The maximum attempts of a job by the nearest class of its error that has a rule; None: there is none.

    The class of an error that a task of Spark has raised is that of its trace.
    """
    if not rules:
        return None
    names = _names_in(error.stack) if isinstance(error, Stated) else _names_of(type(error))
    return next((rules[name] for name in names if name in rules), None)


def _names_of(kind: type) -> Iterable[str]:
    """The names of a class and of its bases, nearest first."""
    return [base.__name__ for base in kind.__mro__]


def _names_in(trace: str) -> Iterable[str]:
    """The same of the class at the end of a Python trace; without its bases if this process has not imported it."""
    lines = trace.rpartition(_HEADER)[2].splitlines() if _HEADER in trace else []
    raised = next((line for line in lines if line and not line[0].isspace()), "").partition(": ")[0]
    kind = _class_of(raised)
    return [raised.rpartition(".")[2]] if kind is None else _names_of(kind)


def _class_of(full_name: str) -> type | None:
    """An imported class by its name in a trace, which leaves out the modules `builtins` and `__main__`."""
    parts = full_name.split(".")
    modules = [(".".join(parts[:count]), parts[count:]) for count in range(len(parts) - 1, 0, -1)]
    for module, names in (*modules, ("__main__", parts), ("builtins", parts)):
        found: object = sys.modules.get(module)
        for name in names:
            # No other members: reading an attribute may run code.
            found = vars(found).get(name) if isinstance(found, (ModuleType, type)) else None
        if isinstance(found, type):
            return found
    return None
