"""The Lua files of the package, and the scripts that can be loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import spark_bull
from spark_bull.core.dialects.registry import DIALECTS
from spark_bull.core.store.lua_files import lua_file

LUA = Path(spark_bull.__file__).parent / "core" / "lua"
#: All files, by their paths without suffix.
FILES = sorted(path.relative_to(LUA).with_suffix("").as_posix() for path in LUA.rglob("*.lua"))
INCLUDES = [file for file in FILES if file.split("/")[-2] == "lib"]
SCRIPT_FILES = [file for file in FILES if file not in INCLUDES]


def text_of(file: str) -> str:
    return (LUA / f"{file}.lua").read_text()


def includes_of(file: str) -> Mapping[str, str]:
    """The names that a file includes, with their files."""
    return lua_file(text_of(file)).includes


def folders_of(dialect: str) -> list[str]:
    """The folders in which includes of a dialect are looked for, by its own folder."""
    return [dialect, *folders_of(dialect.rpartition("/")[0])] if dialect else [""]


def place_of(dialect: str, name: str, file: str) -> str | None:
    """The file in which a dialect finds a name that a file includes."""
    places = (file.format(dialect=folder).removeprefix("/") for folder in folders_of(dialect))
    return next((place for place in places if place in FILES and name in lua_file(text_of(place)).definitions), None)


def _names_of(file: str) -> list[str]:
    """The scripts of a file. One in `verbs/` is a script of each dialect that has its includes but no own file."""
    folder, _, verb = file.rpartition("/")
    if folder != "verbs":
        return [file]
    names = {dialect.folder: f"{dialect.folder}/{verb}" for dialect in DIALECTS.values()}
    includes = includes_of(file)
    return [
        name
        for dialect, name in names.items()
        if name not in FILES and all(place_of(dialect, *include) for include in includes.items())
    ]


SCRIPTS = sorted(name for file in SCRIPT_FILES for name in _names_of(file))
