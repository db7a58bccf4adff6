"""An error in a script names the file of the package and the line where it came up."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from spark_bull.core.errors import ScriptError
from spark_bull.core.queue.bull_queue import BullQueue
from spark_bull.core.store.scripts import load
from tests.support.lua_scripts import text_of


def error_of(queue: BullQueue, script: str, **args: object) -> str:
    keys = {(key := name.rstrip("?.")): f"{queue.handle.keys.base}{key}" for name in load(script).keys}
    with pytest.raises(ScriptError) as raised:
        queue.handle.connection.script(script, keys, {name.rstrip("."): "" for name in load(script).args} | args)
    return str(raised.value)


def line_with(file: str, text: str) -> str:
    lines = text_of(file).splitlines()
    return f"core/lua/{file}.lua:{[text in line for line in lines].index(True) + 1}"


@pytest.mark.parametrize("dialect", ["bull-1", "bull", "bullmq"])
def test_an_error_in_a_script_names_the_file_and_the_line(dialect: str, open_queue: Callable[..., BullQueue]) -> None:
    queue = open_queue(protocol=dialect)
    queue.handle.connection.call("HSET", f"{queue.handle.keys.base}track", "base", 0)
    said = error_of(queue, "results/cut", position="x")
    assert f"{line_with('results/cut', 'tonumber(arg.position) - base')}: attempt to perform arithmetic" in said


@pytest.mark.parametrize("dialect", ["bull", "bullmq"])
def test_an_error_in_an_include_names_its_file_and_line(dialect: str, open_queue: Callable[..., BullQueue]) -> None:
    queue = open_queue(protocol=dialect)
    said = error_of(queue, queue.handle.dialect.script("advance"), ttl_ms="no time", jobs=b"\x90")
    assert line_with("lib/once", "'PX'") in said
    assert not re.search(r"user_script:\d", said)
