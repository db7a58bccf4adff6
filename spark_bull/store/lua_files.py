"""Lua files as the loader of scripts reads them: their contract, includes and keys, and the scope of an include."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from spark_bull.errors import ScriptError

Read = Callable[[str], str]
#: What an include defines.
Kind = Literal["function", "table", "other"]

_TAG = re.compile(r"^-- @(keys|args|returns|include)\b[ \t]*(.*)$", re.MULTILINE)
# A comment, or the use of a key or an argument.
_COMMENT_OR_NAME = re.compile(r"--[^\n]*|\b(key|arg)s?\.(\w+)")
_DEFINITION = re.compile(r"^local (function )?(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class LuaFile:
    """One file. contract: the tags `keys`, `args` and `returns` with their texts. keys, args: those in the code."""

    text: str
    contract: Mapping[str, str]
    includes: tuple[str, ...]
    keys: frozenset[str]
    args: frozenset[str]


@dataclass(frozen=True)
class Include:
    """A file that others include. defines: the name that they use, for a value of this kind. code: its text, in which
    the definition is an assignment. has_helpers: whether it has other functions of its own.
    """

    file: LuaFile
    defines: str
    kind: Kind
    code: str
    has_helpers: bool

    def scope(self, inner: str) -> str:
        """The definition, and `inner`, which only this file uses, in a scope of their own.

        A function makes both when it is first called, a table of functions when it is first indexed, and replaces
        itself: most calls of a script use few of its functions, and to make one takes about as long as to call it.
        """
        name = self.defines
        if self.kind == "function" and (inner or self.has_helpers):
            begin, end = f"function {name}(...)", f"return {name}(...)\nend"
        elif self.kind == "table" and self.has_helpers:
            begin, end = f"{name} = setmetatable({{}}, {{__index = function(_, name)", f"return {name}[name]\nend}})"
        else:
            begin, end = "do", "end"
        return "\n".join(filter(None, (f"local {name}", begin, inner, self.code, end)))


def lua_file(text: str) -> LuaFile:
    tags, names = _TAG.findall(text), _COMMENT_OR_NAME.findall(text)
    includes = tuple(name for tag, value in tags if tag == "include" for name in _included(value))
    contract = {tag: value for tag, value in tags if tag != "include"}
    keys, args = (frozenset(name for table, name in names if table == of) for of in ("key", "arg"))
    return LuaFile(text, contract, includes, keys, args)


def _included(value: str) -> list[str]:
    """The files of a tag, such as `lib: once push`."""
    folder, _, names = value.rpartition(":")
    return [f"{folder}/{name}" if folder else name for name in names.split()]


@cache
def include(name: str, read: Read) -> Include:
    """The include `name`, such as `lib/push`. Raises ScriptError if it does not define what it is named after.

    That is a function or a table of the file's name, or a constant of that name in capitals.
    """
    file, stem = lua_file(read(f"{name}.lua")), name.rpartition("/")[2]
    definitions = [*_DEFINITION.finditer(file.text)]
    for found in definitions:
        if found[2] in (stem, stem.upper()):
            has_helpers = any(other[1] for other in definitions if other is not found)
            before, after = file.text[: found.start()], file.text[found.end() :]
            code = f"{before}{found[1] or ''}{found[2]}{after}"
            kind: Kind = "function" if found[1] else "table" if after.startswith(" = {") else "other"
            return Include(file, found[2], kind, code, has_helpers)
    raise ScriptError(f"expected `{name}.lua` to define `{stem}`, as an include is named after what it defines")
