"""Errors of one line, planted in a copy of the package, one at a time: a test must find each. `make mutants` runs the
test that the error names, and only if that one passes the others that may find it: by the recorded map of what each
test runs (MUTANTS_ARGS=--record), else the tests of the folders of the altered part. It prints which test has found the
error; MUTANTS_ARGS="receipt" selects errors by text. It ends with 1 if an error survived.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Final

from tests.proof.planted.covering import recorded, tests_of
from tests.proof.planted.errors import ERRORS, PACKAGE, Planted

ROOT: Final = PACKAGE.parent
#: The recorded map of what each test runs.
MAP: Final = ROOT / "artifacts" / "coverage"
#: Time limit of one test, s.
TEST_LIMIT_S: Final = 100
#: Part of the time limit of the tests for an error that they took when they were recorded.
RECORDED: Final = 0.8
#: The tests of `make test`, and of `make test-rest`.
IN_TEST, IN_REST = "not rest and not soak", "rest and not soak"
#: Exit statuses of pytest: all tests passed, some failed, none was run.
PASSED, FAILED, NO_TESTS = 0, 1, 5


@dataclass(frozen=True)
class Search:
    """How an error was searched for. found_by: the first test that failed; in_test: whether `make test` runs that."""

    error: Planted
    s: float
    found_by: str | None
    in_test: bool

    def __str__(self) -> str:
        if self.found_by is None:
            return f"SURVIVED  {self.s:4.0f} s  {self.error.error}"
        other = "" if self.found_by == self.error.finder else ", which it does not name"
        rest = "" if self.in_test else ", not in make test"
        return f"found     {self.s:4.0f} s  {self.error.error}: {self.found_by}{other}{rest}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.planted", description=__doc__)
    parser.add_argument("text", nargs="*", help="only the errors with this text")
    parser.add_argument("--record", action="store_true", help="record the map of what tests run anew")
    parser.add_argument("--minutes", type=float, default=5.0, help="maximum time of the tests for an error")
    args = parser.parse_args()
    chosen = [one for one in ERRORS if " ".join(args.text) in f"{one.error} {one.file}"]
    if args.record:
        record()
    tests, limit_s = recorded(MAP), 60 * args.minutes
    with ExitStack() as stack:
        copies: SimpleQueue[Path] = SimpleQueue()
        for _ in range(2):
            copies.put(stack.enter_context(copied()))

        def searched(error: Planted) -> Search:
            copy = copies.get()
            try:
                search = search_for(error, partial(tests_of, error, tests, RECORDED * limit_s), copy, limit_s)
            finally:
                copies.put(copy)
            print(search, flush=True)
            return search

        with ThreadPoolExecutor(2) as pool:
            searches = [*pool.map(searched, chosen)]
        finders = sorted({one.found_by for one in searches if one.found_by})
        for name in failures(run_tests(copies.get(), finders, 10 * limit_s, "-n", "2")[1]) if finders else ():
            print(f"UNSURE: fails without an error, too: {name}")
    print("\n".join(table(searches)))
    survived = sum(one.found_by is None for one in searches)
    raise SystemExit(f"{survived} of {len(searches)} planted errors survived" if survived else None)


def record() -> None:
    """Records what the tests run; those that fail count, too."""
    shutil.rmtree(MAP, ignore_errors=True)
    options = ("-n", "2", "--dist", "worksteal", "-p", "tests.proof.planted.coverage")
    environment = os.environ | {"SPARK_BULL_TEST_COVERAGE": str(MAP)}
    subprocess.run([sys.executable, "-m", "pytest", "-q", *options], cwd=ROOT, env=environment, check=False)


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the checkout that shares its environments."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        for name in listed.stdout.decode().splitlines():
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
        for shared in (".venv", "tests/node/node_modules"):
            (copy / shared).symlink_to(ROOT / shared)
        yield copy


def search_for(error: Planted, others: Callable[[], Sequence[str]], copy: Path, limit_s: float) -> Search:
    file = copy / PACKAGE.name / error.file
    text = file.read_text("utf-8")
    file.write_text(error.planted(text), "utf-8")
    start = time.monotonic()
    try:
        for tests in (lambda: [error.finder], others):
            ids = tests()
            for tier in (IN_TEST, IN_REST):
                if found_by := first_failure(copy, ids, limit_s, "-m", tier):
                    return Search(error, time.monotonic() - start, found_by, tier == IN_TEST)
    finally:
        file.write_text(text, "utf-8")
    return Search(error, time.monotonic() - start, None, in_test=False)


def first_failure(copy: Path, ids: Sequence[str], limit_s: float, *options: str) -> str | None:
    """Runs tests up to the first failure, in this order; returns its id."""
    ids = [one for one in ids if one and (copy / one.partition("::")[0]).exists()]
    status, output = run_tests(copy, ids, limit_s, "-x", *options) if ids else (PASSED, "")
    # Parameters can differ from those that were recorded, such as times.
    if missing := set(re.findall(r"^ERROR: not found: \S*?/copy/(.*)$", output, re.MULTILINE)):
        return first_failure(copy, [one for one in ids if one not in missing], limit_s, *options)
    if status not in (PASSED, FAILED, NO_TESTS, None):
        print(f"expected pytest to run {len(ids)} tests, it ended with {status}:\n{output[-2000:]}", flush=True)
    # A test that never ends has found the error, too.
    return next(iter(failures(output)), ids[0] if status is None and len(ids) == 1 else None)


def failures(output: str) -> list[str]:
    """The tests, without their values, or modules, that have failed."""
    return re.findall(r"^(?:FAILED|ERROR) (tests/[^\s:]+(?:::\w+)*)", output, re.MULTILINE)


def run_tests(copy: Path, ids: Sequence[str], limit_s: float, *options: str) -> tuple[int | None, str]:
    """Runs tests; returns the exit status of pytest, None for those that took too long, and its output."""
    command = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-rfE", "-p", "no:cacheprovider"]
    command += ["--timeout", str(TEST_LIMIT_S), *options, *ids]
    process = subprocess.Popen(
        command,
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit_s)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return None, process.communicate()[0]


def table(searches: Sequence[Search]) -> list[str]:
    """How many errors of each room were found."""
    planted = Counter(one.error.room for one in searches)
    found = Counter(one.error.room for one in searches if one.found_by)
    in_test = Counter(one.error.room for one in searches if one.in_test)
    lines = ["| planted in | errors | found by `make test-all` | by `make test` |", "|---|---|---|---|"]
    for room in planted:
        lines.append(f"| `{room}` | {planted[room]} | {found[room]} | {in_test[room]} |")
    return [*lines, f"| all | {planted.total()} | {found.total()} | {in_test.total()} |"]


if __name__ == "__main__":
    main()
