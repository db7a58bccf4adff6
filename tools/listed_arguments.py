"""An extension of griffe for the reference of the Python API: lists the options of a function as `help()` does."""

from __future__ import annotations

import inspect
from typing import Any

import griffe


class ListedArguments(griffe.Extension):
    """Replaces a parameter `**name: Unpack[type]` with those that `spark_bull.core.options.arguments` lists for it."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        last = func.parameters[-1] if len(func.parameters) else None
        if last is None or not str(last.annotation).startswith("Unpack["):
            return
        shown = func.parent if func.name == "__init__" and func.parent else func
        found = griffe.dynamic_import(shown.path)
        if shown.docstring is not None:
            shown.docstring.value = inspect.getdoc(found) or ""
        del func.parameters[last.name]
        for name, parameter in inspect.signature(found).parameters.items():
            if name not in func.parameters:
                kind = griffe.ParameterKind("keyword-only")
                func.parameters.add(griffe.Parameter(name, annotation=parameter.annotation, kind=kind, default="None"))
