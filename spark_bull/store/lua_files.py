"""Lua files as the loader of scripts reads them: their contract, includes and keys, and the scope of an include."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from spark_bull.errors import ScriptError

Read = Callable[[str], str]

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
    """A file that others include. defines: the name that they use. scope: its code, in which other names are local."""

    file: LuaFile
    defines: str
    scope: str


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

    That is a function or a table of the file's name, or a constant of that name in capitals. The definition becomes an
    assignment to a variable outside the scope.
    """
    file, stem = lua_file(read(f"{name}.lua")), name.rpartition("/")[2]
    for found in _DEFINITION.finditer(file.text):
        if found[2] in (stem, stem.upper()):
            before, after = file.text[: found.start()], file.text[found.end() :]
            scope = f"local {found[2]}\ndo\n{before}{found[1] or ''}{found[2]}{after}\nend"
            return Include(file, found[2], scope)
    raise ScriptError(f"expected `{name}.lua` to define `{stem}`, as an include is named after what it defines")
