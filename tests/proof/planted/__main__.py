"""Errors of one line, planted in a copy of the package, one at a time: a test must find each. `make mutants` runs the
test that the error names, and only if that one passes the tests of the folders of the altered part. It prints which
test has found the error; MUTANTS_ARGS="receipt" selects errors by text. It ends with 1 if an error survived.
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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import Final

from tests.proof.planted.errors import ERRORS, PACKAGE, Planted

ROOT: Final = PACKAGE.parent
#: The folders of the tests of a part, by the start of the altered file.
FOLDERS: Final = {
    "core/lua/": ("conformance", "faults", "interop"),
    "core/": ("unit/core", "conformance", "integration"),
    "run/": ("unit/run", "conformance", "integration", "faults"),
    "spark/": ("unit/spark", "spark"),
    "ops/": ("unit/ops", "integration", "web"),
}
#: Time limit of one test, s.
TEST_LIMIT_S: Final = 100
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
    parser.add_argument("--minutes", type=float, default=5.0, help="maximum time of the tests for an error")
    args = parser.parse_args()
    chosen = [one for one in ERRORS if " ".join(args.text) in f"{one.error} {one.file}"]
    limit_s = 60 * args.minutes
    with ExitStack() as stack:
        copies: SimpleQueue[Path] = SimpleQueue()
        for _ in range(2):
            copies.put(stack.enter_context(copied()))

        def searched(error: Planted) -> Search:
            copy = copies.get()
            try:
                search = search_for(error, copy, limit_s)
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


def search_for(error: Planted, copy: Path, limit_s: float) -> Search:
    file = copy / PACKAGE.name / error.file
    text = file.read_text("utf-8")
    file.write_text(error.planted(text), "utf-8")
    start = time.monotonic()
    try:
        for ids in ([error.finder], folders_of(error)):
            for tier in (IN_TEST, IN_REST):
                if found_by := first_failure(copy, ids, limit_s, "-m", tier):
                    return Search(error, time.monotonic() - start, found_by, tier == IN_TEST)
    finally:
        file.write_text(text, "utf-8")
    return Search(error, time.monotonic() - start, None, in_test=False)


def folders_of(error: Planted) -> list[str]:
    folders = next(folders for start, folders in FOLDERS.items() if error.file.startswith(start))
    return [f"tests/{one}" for one in folders]


def first_failure(copy: Path, ids: Sequence[str], limit_s: float, *options: str) -> str | None:
    """Runs tests up to the first failure, in this order; returns its id."""
    status, output = run_tests(copy, ids, limit_s, "-x", *options)
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
