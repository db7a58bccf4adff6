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
`local function push` or `local push = {…}`), or in capitals as a constant. All its other names are its own. Without
these scopes, a script with many includes would exceed Lua's limit of 200 local variables. Includes that serve only one
other include are made inside it, and if it is a function, when it is first called: see `Include.scope`.

The script `bullmq/add` is `verbs/add.lua` unless there is a `bullmq/add.lua`. In an include, `{dialect}` is the folder
of the dialect whose script is loaded, or the nearest one around it that has the file: `{dialect}/lib/push` is
`bull/bull1/lib/push.lua`, else `bull/lib/push.lua`, else `lib/push.lua`. So a file that differs between dialects only
in what it includes serves all of them.

A script of a dialect with a file `lib/key_types.lua` first checks the types of its keys: see `lib/check_types.lua`.

Files are read with importlib.resources, which also works in a zip file passed to --py-files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from itertools import takewhile
from typing import Final

from spark_bull.errors import ScriptError
from spark_bull.store.lua_files import Include, LuaFile, Read, include, lua_file

Value = str | bytes | int | float
#: The includes around a scope, the outermost one first.
Place = tuple[str, ...]

#: Lua finds a local variable faster than a global one.
_TABLES = "local KEYS, ARGV = KEYS, ARGV"
_OPTIONAL, _REST = "?", "..."
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
            if value is None and is_optional:
                value = bound[0] if bound else ""
            if value is None:
                raise self._missing("key", name)
            if isinstance(value, str):
                bound.append(value)
            else:
                bound.extend(map(str, value))
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
        return resources.files("spark_bull").joinpath(f"lua/{path}").read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError, KeyError):
        raise ScriptError(f"expected a Lua file `{path}` in the package, found none") from None


def assemble(name: str, read: Read) -> Script:
    """Builds a script from the files that `read(path)` returns; see `load`."""
    folder, _, verb = name.rpartition("/")
    script = _script_file(name, verb, read)
    if "returns" not in script.contract:
        raise ScriptError(f"script `{name}` has an incomplete contract, missing: returns")
    included: dict[str, Include] = {}
    users: dict[str, list[str]] = {}
    has_types = _has_key_types(folder, read)
    for file in (*script.includes, *([CHECK] if has_types else [])):
        _resolve(file, folder, read, included, users, path=(name,))
    _check_names(name, included)
    files = [script, *(found.file for found in included.values())]
    keys = _names(script.contract.get("keys", ""), *(file.keys for file in files))
    args = _names(script.contract.get("args", ""), *(file.args for file in files))
    bindings = [_TABLES, _binding("key", "KEYS", keys), _binding("arg", "ARGV", args)]
    check = ["check_types(key)"] if has_types else []
    source = "\n".join([*bindings, _scopes(included, _places(name, users, included)), *check, script.text])
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(name, keys, args, script.contract["returns"], source, sha)


def _has_key_types(folder: str, read: Read) -> bool:
    """Whether the dialect of a folder, or one around it, says which types its keys have."""
    if not folder:
        return False
    try:
        read(f"{folder}/lib/key_types.lua")
    except ScriptError:
        return _has_key_types(folder.rpartition("/")[0], read)
    return True


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


def _resolve(
    file: str, folder: str, read: Read, done: dict[str, Include], users: dict[str, list[str]], path: tuple[str, ...]
) -> None:
    """Adds an include to `done`, after all files that it includes, and the last file of `path` to its users."""
    name = _nearest(file, folder, read)
    if name in path:
        raise ScriptError("expected includes without a cycle, got: " + " -> ".join((*path, name)))
    users.setdefault(name, []).append(path[-1])
    if name in done:
        return
    found = _read_include(name, read, by=path[-1])
    for used in found.file.includes:
        _resolve(used, folder, read, done, users, (*path, name))
    done[name] = found


def _places(script: str, users: Mapping[str, Sequence[str]], included: Iterable[str]) -> dict[str, Place]:
    """Where the scope of each include is: inside those of the includes through which all its users reach it."""
    places: dict[str, Place] = {}
    inside: dict[str, Place] = {script: ()}
    # All users of an include come after it.
    for name in reversed([*included]):
        places[name] = _shared([inside[user] for user in users[name]])
        inside[name] = (*places[name], name)
    return places


def _shared(places: Sequence[Place]) -> Place:
    """The includes with which all places begin."""
    together = zip(*places, strict=False)
    return tuple(names[0] for names in takewhile(lambda names: len({*names}) == 1, together))


def _scopes(included: Mapping[str, Include], places: Mapping[str, Place], place: Place = ()) -> str:
    """The scopes at a place, each with those inside it."""
    return "\n".join(
        found.scope(_scopes(included, places, (*place, name)))
        for name, found in included.items()
        if places[name] == place
    )


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


def _binding(table: str, source: str, names: tuple[str, ...]) -> str:
    """Returns Lua code that binds the names of a contract to KEYS or ARGV.

    Most names are in one constructor: a table that grows name by name takes several times as long.
    """
    fixed = [name for name in names if not name.endswith(_REST)]
    entries = [f"{_without_suffix(name)} = {_value(name, f'{source}[{i}]', source)}" for i, name in enumerate(fixed, 1)]
    lines = [f"local {table} = {{{', '.join(entries)}}}"]
    if len(fixed) < len(names):
        rest = _without_suffix(names[-1])
        lines.append(f"{table}.{rest} = {{}}")
        lines.append(f"for i = {len(names)}, #{source} do")
        lines.append(f"  {table}.{rest}[i - {len(fixed)}] = {source}[i]")
        lines.append("end")
    return "\n".join(lines)


def _value(name: str, element: str, source: str) -> str:
    """Returns the Lua expression of a name's value: an absent optional key is nil."""
    return f"{element} ~= {source}[1] and {element} or nil" if name.endswith(_OPTIONAL) else element
