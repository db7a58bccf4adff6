"""The Lua files of the package: includes, files of scripts, and the names of the scripts that can be loaded."""

from __future__ import annotations

import re
from pathlib import Path

import spark_bull
from spark_bull.dialects.registry import DIALECTS

LUA = Path(spark_bull.__file__).parent / "lua"
#: All files, by their paths without suffix.
FILES = sorted(path.relative_to(LUA).with_suffix("").as_posix() for path in LUA.rglob("*.lua"))
INCLUDES = [file for file in FILES if file.split("/")[-2] == "lib"]
SCRIPT_FILES = [file for file in FILES if file not in INCLUDES]


def text_of(file: str) -> str:
    return (LUA / f"{file}.lua").read_text()


def includes_of(file: str) -> list[str]:
    return re.findall(r"^-- @include (\S+)$", text_of(file), re.MULTILINE)


def _names_of(file: str) -> list[str]:
    """The scripts of a file. One in `verbs/` is a script of each dialect that has its includes but no own file."""
    folder, _, verb = file.partition("/")
    if folder != "verbs":
        return [file]
    folders = [dialect.folder for dialect in DIALECTS.values()]
    own = [include for include in includes_of(file) if include.startswith("{dialect}/")]
    return [
        f"{name}/{verb}"
        for name in folders
        if f"{name}/{verb}" not in FILES and all(include.format(dialect=name) in INCLUDES for include in own)
    ]


SCRIPTS = sorted(name for file in SCRIPT_FILES for name in _names_of(file))
