"""Modules that are imported with the first use of one of their names.

Most programs, each command and each process of Spark need few of the modules that a class or a step could use.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any


class _Late(ModuleType):
    """Stands for the module of its name."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


def late(*names: str, of: str = "") -> Iterator[Any]:
    """The modules of these names in the package `of`. Type checkers need plain imports, under TYPE_CHECKING."""
    return (_Late(f"{of}.{name}" if of else name) for name in names)
