"""Loads the Lua scripts of the package: their contracts and includes.

A script starts with its contract, in comment lines:

    -- What the script does, in one sentence.
    -- @args ids...                    a name of ARGV that takes all remaining ones
    -- @keys ledger? stages...         names of KEYS that the code does not show, see below
    -- @returns the reply
    -- @include bullmq/lib: add_jobs   files of a folder in lua/, loaded once, before the body

The loader binds the names: the body reads `key.wait` and `arg.now`, never KEYS[1]. It finds both in the code of the
script and its includes (`keys.wait` or `args.base` where they are those of another queue). `@args` and `@keys` name the
others: optional keys (`name?`), a last one that takes all that remain (`name...`), and keys looked up by a variable.

An include defines one name for the files that include it: that of its file, as a function or a table (`push.lua`:
`local function push` or `local push = {…}`), or in capitals as a constant, never nil. All its other names are its own.
A file has neither a variable nor a field in a constructor with the name of what it includes.

In the text that Redis gets, all these names are numbers, as each call would have to make tables and functions for them.
`key` is KEYS, so `key.wait` is `key[3]`, also where `key` has the keys of another queue. If a file has `key[name]`,
keys have their names, too; no other variable, and no argument, is looked up by a name, and no table that a file makes
with names can stand for `key` or `arg`. What includes define is in the table `lib`, and made when it is first used:
most calls of a script use few of its functions, and to make one takes about as long as to call it.

The script `bullmq/add` is `verbs/add.lua` unless there is a `bullmq/add.lua`. In an include, `{dialect}` is the folder
of the dialect whose script is loaded, or the nearest one around it that has the file: `{dialect}/lib/push` is
`bull/bull1/lib/push.lua`, else `bull/lib/push.lua`, else `lib/push.lua`. So a file that differs between dialects only
in what it includes serves all of them.

A script of a dialect with a file `lib/key_types.lua` first checks that its keys have these types, or else calls
`lib/check_types.lua`.

Files are read with importlib.resources, which also works in a zip file passed to --py-files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Final

from spark_bull.core.errors import ScriptError
from spark_bull.core.store.lua_files import Include, LuaFile, Numbers, Read, include, lua_file

Value = str | bytes | int | float

#: Lua finds a local variable faster than a global one.
_TABLES = "local key, arg = KEYS, ARGV"
_OPTIONAL, _REST = "?", "..."
#: For each type, a command that fails for keys of other types and returns a number: Lua gets that in a fraction of the
#: time that it takes to get the table that TYPE returns.
_COUNTING: Final[Mapping[str, str]] = {
    "list": "LLEN",
    "zset": "ZCARD",
    "set": "SCARD",
    "hash": "HLEN",
    "stream": "XLEN",
    "string": "STRLEN",
}
_KEY_TYPE = re.compile(r"^  (\w+) = '(\w+)',$", re.MULTILINE)
#: The include that checks the types of keys.
CHECK: Final = "lib/check_types"


def _without_suffix(name: str) -> str:
    """Removes the suffix of a name in a contract."""
    return name.removesuffix(_OPTIONAL).removesuffix(_REST)


@dataclass(frozen=True)
class Script:
    """A loaded script: its contract, its source with all includes, and its SHA1 for EVALSHA."""

    name: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    returns: str
    source: str
    sha: str

    def bind_keys(self, values: Mapping[str, str | Iterable[str] | None]) -> list[str]:
        """Returns KEYS in the order of the contract. Raises ScriptError for a missing or empty key.

        An absent optional key is replaced by the first key, which the script recognizes: any other string may be denied
        by the ACL's key patterns, or belong to another slot of a cluster.
        """
        bound: list[str] = []
        for name, is_optional in self._key_names:
            value = values.get(name)
            if isinstance(value, str):
                bound.append(value)
            elif value is not None:
                bound.extend(map(str, value))
            elif is_optional:
                bound.append(bound[0] if bound else "")
            else:
                raise self._missing("key", name)
        if "" in bound:
            raise ScriptError(f"script `{self.name}` expects non-empty keys, got: {', '.join(map(repr, bound))}")
        return bound

    def bind_args(self, values: Mapping[str, Value | Iterable[Value]]) -> list[Value]:
        """Returns ARGV in the order of the contract. Raises ScriptError for a missing argument."""
        bound: list[Value] = []
        for name in self._arg_names:
            if name not in values:
                raise self._missing("argument", name)
            value = values[name]
            if isinstance(value, (str, bytes, int, float)):
                bound.append(value)
            else:
                bound.extend(value)
        return bound

    @cached_property
    def _key_names(self) -> list[tuple[str, bool]]:
        """The names of the keys without suffixes, and whether they are optional."""
        return [(_without_suffix(name), name.endswith(_OPTIONAL)) for name in self.keys]

    @cached_property
    def _arg_names(self) -> list[str]:
        return [_without_suffix(name) for name in self.args]

    def _missing(self, kind: str, name: str) -> ScriptError:
        return ScriptError(f"script `{self.name}` expects the {kind} `{name}`, got none")


@cache
def load(name: str) -> Script:
    """Loads a script by its name, such as `load("bullmq/add")`.

    Raises ScriptError if a file is missing, a contract is incomplete, or includes are circular.
    """
    return assemble(name, _read_packaged)


def _read_packaged(path: str) -> str:
    try:
        return resources.files("spark_bull.core").joinpath(f"lua/{path}").read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError, KeyError):
        raise ScriptError(f"expected a Lua file `{path}` in the package, found none") from None


def assemble(name: str, read: Read) -> Script:
    """Builds a script from the files that `read(path)` returns; see `load`."""
    folder, _, verb = name.rpartition("/")
    script = _script_file(name, verb, read)
    if "returns" not in script.contract:
        raise ScriptError(f"script `{name}` has an incomplete contract, missing: returns")
    included: dict[str, Include] = {}
    for file in script.includes:
        _resolve(file, folder, read, included, path=(name,))
    files = [script, *(found.file for found in included.values())]
    keys = _names(script.contract.get("keys", ""), *(file.keys for file in files))
    types = {name: kind for name, kind in key_types(folder, read).items() if name in keys}
    if types:
        _resolve(CHECK, folder, read, included, path=(name,))
    _check_names(name, included)
    args = _names(script.contract.get("args", ""), *(file.args for file in files))
    defined = {found.defines: number for number, found in enumerate(included.values(), 1)}
    numbers = Numbers(_numbers(keys), _numbers(args), defined)
    parts = [
        _TABLES,
        *_prepared("key", keys),
        *_prepared("arg", args),
        *(_named(numbers.keys) if any(file.looks_up for file in files) else []),
        *_lib([_made(found, numbers) for found in included.values()]),
        *_check(numbers, types),
        numbers.put_into(script.text, script),
    ]
    source = "\n".join(parts)
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(name, keys, args, script.contract["returns"], source, sha)


def key_types(folder: str, read: Read) -> dict[str, str]:
    """The types of keys by their names, as the dialect of a folder, or one around it, says; empty if none does."""
    if not folder:
        return {}
    try:
        return dict(_KEY_TYPE.findall(read(f"{folder}/lib/key_types.lua")))
    except ScriptError:
        return key_types(folder.rpartition("/")[0], read)


def _script_file(name: str, verb: str, read: Read) -> LuaFile:
    """The dialect's own file, else that of all dialects."""
    try:
        return lua_file(read(f"{name}.lua"))
    except ScriptError as missing:
        try:
            return lua_file(read(f"verbs/{verb}.lua"))
        except ScriptError:
            raise missing from None


def _names(contract: str, *used: frozenset[str]) -> tuple[str, ...]:
    """The names of KEYS or ARGV: those declared and those in the code. Optional ones come later, `name...` last."""
    declared = contract.split()
    names = {*declared, *frozenset().union(*used).difference(map(_without_suffix, declared))}
    return tuple(sorted(names, key=lambda name: (name.endswith(_REST), name.endswith(_OPTIONAL), name)))


def _check_names(script: str, included: Mapping[str, Include]) -> None:
    """Raises ScriptError if two includes of a script define the same name."""
    files: dict[str, str] = {}
    for file, found in included.items():
        other = files.setdefault(found.defines, file)
        if other != file:
            both = f"{other}.lua, {file}.lua"
            raise ScriptError(f"expected one include of `{script}` to define `{found.defines}`, got: {both}")


def _resolve(file: str, folder: str, read: Read, done: dict[str, Include], path: tuple[str, ...]) -> None:
    """Adds an include, and all files that it includes, to `done`."""
    name = _nearest(file, folder, read)
    if name in path:
        raise ScriptError("expected includes without a cycle, got: " + " -> ".join((*path, name)))
    if name in done:
        return
    done[name] = _read_include(name, read, by=path[-1])
    for used in done[name].file.includes:
        _resolve(used, folder, read, done, (*path, name))


def _read_include(name: str, read: Read, by: str) -> Include:
    try:
        return include(name, read)
    except ScriptError as error:
        raise ScriptError(f"{error}; `{by}` includes it") from None


def _nearest(file: str, folder: str, read: Read) -> str:
    """The name of an include, whose `{dialect}` is this folder or the nearest one around it that has the file."""
    name = file.format(dialect=folder).removeprefix("/")
    if not folder or name == file:
        return name
    try:
        read(f"{name}.lua")
    except ScriptError:
        return _nearest(file, folder.rpartition("/")[0], read)
    return name


def _numbers(names: Sequence[str]) -> dict[str, int]:
    return {_without_suffix(name): number for number, name in enumerate(names, 1)}


def _prepared(table: str, names: Sequence[str]) -> Iterator[str]:
    """Lua code by which a last name has the list of all values that remain, and absent optional ones are nil."""
    if names and names[-1].endswith(_REST):
        last = len(names)
        yield f"do\nlocal rest = {{}}\nfor i = {last}, #{table} do"
        yield f"  rest[i - {last - 1}], {table}[i] = {table}[i], nil\nend\n{table}[{last}] = rest\nend"
    for number, name in enumerate(names, 1):
        if name.endswith(_OPTIONAL):
            yield f"if {table}[{number}] == {table}[1] then {table}[{number}] = nil end"


def _named(numbers: Mapping[str, int]) -> Iterator[str]:
    """Lua code by which keys can also be found by their names."""
    yield from (f"key.{name} = key[{number}]" for name, number in numbers.items())


def _made(found: Include, numbers: Numbers) -> str:
    """Lua code that makes an include."""
    code = numbers.put_into(found.code, found.file, found.defines)
    return f"-- lib[{numbers.defined[found.defines]}]: {found.defines}\n{code}"


def _lib(includes: Sequence[str]) -> Iterator[str]:
    """Lua code of a table that makes each include when it is first used."""
    if includes:
        yield f"local lib = {{{'nil,' * len(includes)}}}"
        yield f"setmetatable(lib, {{__index = function(_, n)\n{_nth(includes, 1)}\nreturn lib[n]\nend}})"


def _nth(includes: Sequence[str], first: int) -> str:
    """Lua code that makes the include number `n` of those from `first` on."""
    if len(includes) == 1:
        return includes[0]
    half = len(includes) // 2
    less, more = _nth(includes[:half], first), _nth(includes[half:], first + half)
    return f"if n < {first + half} then\n{less}\nelse\n{more}\nend"


def _check(numbers: Numbers, types: Mapping[str, str]) -> Iterator[str]:
    """Lua code that fails if a key has another type. A command that returns a number tells it fastest."""
    found = {f"key[{numbers.keys[name]}]": kind for name, kind in types.items()}
    if found:
        commands = "\n".join(f"  call('{_COUNTING[kind]}', {key})" for key, kind in found.items())
        yield f"do\nlocal is_sound, why = pcall(function()\n  local call = redis.call\n{commands}\nend)"
        pairs = ", ".join(f"[{key}] = '{kind}'" for key, kind in found.items())
        yield f"if not is_sound then\n  lib[{numbers.defined['check_types']}]({{{pairs}}}, why)\nend\nend"
