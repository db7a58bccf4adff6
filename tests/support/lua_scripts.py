"""The Lua files of the package, and the scripts that can be loaded."""

from __future__ import annotations

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


def includes_of(file: str) -> list[str]:
    return [*lua_file(text_of(file)).includes]


def folders_of(dialect: str) -> list[str]:
    """The folders in which includes of a dialect are looked for, by its own folder."""
    return [dialect, *folders_of(dialect.rpartition("/")[0])] if dialect else [""]


def _has(dialect: str, include: str) -> bool:
    return any(include.format(dialect=folder).removeprefix("/") in INCLUDES for folder in folders_of(dialect))


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
        if name not in FILES and all(_has(dialect, include) for include in includes)
    ]


SCRIPTS = sorted(name for file in SCRIPT_FILES for name in _names_of(file))
