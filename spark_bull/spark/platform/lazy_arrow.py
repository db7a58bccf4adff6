"""Modules of Arrow, imported with the first use of one of their names.

Spark runs each step of a read or write in a process of its own. Those that plan or commit a write load the same modules
of this package as its tasks, but touch no Arrow data.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

__all__ = ["pa", "pc", "pj"]

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.json as pj
else:

    class _Lazy(ModuleType):
        """Stands for the module of its name."""

        def __getattr__(self, name):
            value = getattr(import_module(self.__name__), name)
            setattr(self, name, value)
            return value

    pa, pc, pj = _Lazy("pyarrow"), _Lazy("pyarrow.compute"), _Lazy("pyarrow.json")
