"""What each test runs: a plugin of pytest (`-p tests.proof.planted.coverage`), which writes a file per process to the
folder of SPARK_BULL_TEST_COVERAGE. It notes functions of the package and scripts, not what other processes run.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Generator
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

import spark_bull
from spark_bull.core.store.scripts import Script

PACKAGE: Final = f"{Path(spark_bull.__file__).parent}{os.sep}"

#: Numbers of functions, such as `core/queue/handle/handle.py:run`, and of scripts, such as `bullmq/add`.
_numbers: Final[dict[str, int]] = {}
#: For each test, the time that it took, s, and the numbers of what it ran.
_tests: Final[dict[str, tuple[float, list[int]]]] = {}
#: The code that the current test has run, by its address, and its functions and scripts.
_seen: Final[set[int]] = set()
_ran: Final[set[str]] = set()


def _trace(frame: FrameType, _event: str, _arg: object) -> None:
    code = frame.f_code
    if id(code) not in _seen:
        _seen.add(id(code))
        if code.co_filename.startswith(PACKAGE):
            _ran.add(f"{code.co_filename.removeprefix(PACKAGE)}:{code.co_name}")


def _noting(bind_args: Any) -> Any:
    @wraps(bind_args)
    def bind(script: Script, values: Any) -> Any:
        _ran.add(script.name)
        return bind_args(script, values)

    return bind


def pytest_configure() -> None:
    Script.bind_args = _noting(Script.bind_args)
    threading.settrace(_trace)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _seen.clear()
    _ran.clear()
    sys.settrace(_trace)
    start = time.monotonic()
    try:
        return (yield)
    finally:
        sys.settrace(None)
        ran = [_numbers.setdefault(name, len(_numbers)) for name in sorted(_ran)]
        _tests[item.nodeid] = round(time.monotonic() - start, 2), ran


def pytest_sessionfinish() -> None:
    if _tests:
        folder = Path(os.environ["SPARK_BULL_TEST_COVERAGE"])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{os.getpid()}.json").write_text(json.dumps({"names": [*_numbers], "tests": _tests}))
