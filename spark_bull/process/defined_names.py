"""The names that a module defines, without running it: its import may need the session, or create another one."""

from __future__ import annotations

import re
import symtable
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from typing import Any, Final

#: Ways to define names that only show when the module runs.
_DYNAMIC: Final = re.compile(
    r"\bimport\s*\*|\b(globals|locals|vars|exec|setattr)\s*\(|(\bsys\.|\bimport\s+)modules\b|\b__(dict|getattr)__\b"
)


def may_define(spec: ModuleSpec, name: str) -> bool:
    """Whether a module may define a name; True also if its source does not tell. Raises SyntaxError."""
    get_source: Any = getattr(spec.loader, "get_source", None)
    try:
        source = get_source(spec.name) if get_source else None
    except ImportError:
        source = None
    if source is None or _DYNAMIC.search(source):
        return True
    return name in _defined(symtable.symtable(source, spec.origin or spec.name, "exec"))


def _defined(table: symtable.SymbolTable) -> Iterator[str]:
    """The names that a module, and functions with a statement `global`, bind."""
    for symbol in table.get_symbols():
        is_of_module = table.get_type() == "module" or symbol.is_declared_global()
        if is_of_module and (symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _defined(inner)
