"""Lua files as the loader of scripts reads them: their contract, includes and keys, and what an include defines."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from spark_bull.core.errors import ScriptError

Read = Callable[[str], str]

_TAG = re.compile(r"^-- @(keys|args|returns|include)\b[ \t]*(.*)$", re.MULTILINE)
# A comment, a text, the use of a key or an argument, or another name that is not one of a field.
_TOKEN = re.compile(
    r"""--[^\n]*|'[^'\n]*'|"[^"\n]*"|\b(?P<table>(?P<of>key|arg)s?)\.(?P<field>\w+)|(?<![.:\w])[A-Za-z_]\w*"""
)
# A key that is looked up by a variable.
_LOOKUP = re.compile(r"\bkey\[")
_DEFINITION = re.compile(r"^local (function )?(\w+)", re.MULTILINE)


@dataclass(frozen=True)
class LuaFile:
    """One file. contract: the tags `keys`, `args` and `returns` with their texts. keys, args: those in the code.
    looks_up: whether it looks up keys by a variable.
    """

    text: str
    contract: Mapping[str, str]
    includes: tuple[str, ...]
    keys: frozenset[str]
    args: frozenset[str]
    looks_up: bool


@dataclass(frozen=True)
class Include:
    """A file that others include. defines: the name that they use. code: its text, in which the definition is an
    assignment.
    """

    file: LuaFile
    defines: str
    code: str


@dataclass(frozen=True)
class Numbers:
    """The numbers of the names of a script: its keys, its arguments, and what its includes define."""

    keys: Mapping[str, int]
    args: Mapping[str, int]
    defined: Mapping[str, int]

    def put_into(self, text: str, file: LuaFile, *own: str) -> str:
        """The text of a file with numbers: `key[3]` for `key.wait`, and `lib[7]` for a name that it includes or, as one
        of `own`, defines.
        """
        stems = [include.rpartition("/")[2] for include in file.includes]
        included = {name for stem in stems for name in (stem, stem.upper()) if name in self.defined} | {*own}

        def numbered(found: re.Match[str]) -> str:
            if found["of"]:
                numbers = self.keys if found["of"] == "key" else self.args
                return f"{found['table']}[{numbers[found['field']]}]"
            return f"lib[{self.defined[found[0]]}]" if found[0] in included else found[0]

        return _TOKEN.sub(numbered, text)


def lua_file(text: str) -> LuaFile:
    tags = _TAG.findall(text)
    includes = tuple(name for tag, value in tags if tag == "include" for name in _included(value))
    contract = {tag: value for tag, value in tags if tag != "include"}
    used = {(found["of"], found["field"]) for found in _TOKEN.finditer(text)}
    keys, args = (frozenset(name for table, name in used if table == of) for of in ("key", "arg"))
    return LuaFile(text, contract, includes, keys, args, bool(_LOOKUP.search(text)))


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
    for found in _DEFINITION.finditer(file.text):
        if found[2] in (stem, stem.upper()):
            before, after = file.text[: found.start()], file.text[found.end() :]
            return Include(file, found[2], f"{before}{found[2]}{' = function' if found[1] else ''}{after}")
    raise ScriptError(f"expected `{name}.lua` to define `{stem}`, as an include is named after what it defines")
