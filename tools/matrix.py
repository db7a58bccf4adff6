"""Runs a program of all verbs with several versions of PySpark, Python and pandas.

python tools/matrix.py                  makes an environment for each, runs the program, and prints a table
python tools/matrix.py --oldest         only makes the environment of the oldest versions, for `make test`
python tools/matrix.py --tests 4.0 4.1  runs tests/spark with these versions of PySpark; without one, with TESTED
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PROGRAM: Final = ROOT / "tests" / "proof" / "all_verbs.py"
#: What the program prints, in this order.
STEPS: Final = ("dispatch", "inspect", "process in slots", "process in batches", "collect")
#: The extras of setup.cfg that the program needs, and those that tests/spark needs.
FOR_PROGRAM: Final = "spark,local"
FOR_TESTS: Final = "local,demo,test"
_TIMEOUT_S: Final = 1800


class NotRun(Exception):
    """Why an environment does not exist."""


@dataclass(frozen=True)
class Environment:
    """Versions; pandas: a requirement of pip. In a folder beside .venv, so that it is made once."""

    pyspark: str
    python: str
    pandas: str = "<3"

    @property
    def folder(self) -> Path:
        return ROOT / f".venv-pyspark-{self.pyspark}-python-{self.python}"

    @property
    def interpreter(self) -> Path:
        return self.folder / "bin" / "python"

    def is_made(self, extras: str = FOR_PROGRAM) -> bool:
        """Whether the environment exists with these extras, and is newer than setup.cfg."""
        stamp = self._stamp(extras)
        return stamp.exists() and stamp.stat().st_mtime > (ROOT / "setup.cfg").stat().st_mtime

    def make(self, extras: str = FOR_PROGRAM) -> None:
        """Makes the environment unless it is made. Raises NotRun."""
        if self.is_made(extras):
            return
        python = find_python(self.python)
        print(f"Installing PySpark {self.pyspark} into {self.folder.name}", file=sys.stderr)
        installed = [f"pyspark=={self.pyspark}.*", f"pandas{self.pandas}", "--editable", f"{ROOT}[{extras}]"]
        for command in (
            [python, "-m", "venv", str(self.folder)],
            [str(self.interpreter), "-m", "pip", "install", "--quiet", *installed],
            [str(self.interpreter), str(ROOT / "tools" / "compiled_pyspark.py")],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                why = (done.stderr.strip().splitlines() or ["it failed"])[-1]
                raise NotRun(f"{' '.join(command[1:4])}: {why}")
        for made in (FOR_PROGRAM, extras):
            self._stamp(made).touch()

    def _stamp(self, extras: str) -> Path:
        return self.folder / f".installed-{extras}"

    def pandas_version(self) -> str:
        command = [str(self.interpreter), "-c", "import pandas; print(pandas.__version__)"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@cache
def oldest() -> Environment:
    """The oldest PySpark and pandas with the oldest Python of this machine that they support. Raises NotRun."""
    for python in (OLDEST.python, "3.11", "3.12", "3.13"):
        with suppress(NotRun):
            find_python(python)
            return Environment(OLDEST.pyspark, python, OLDEST.pandas)
    raise NotRun(f"no Python from {OLDEST.python} to 3.13 on this machine")


OLDEST: Final = Environment("4.0", "3.10", "==2.2.*")
#: The versions with which nobody has run the program: README.md has no row of them.
UNTRIED: Final = Environment("4.3", "3.14")
ENVIRONMENTS: Final = (
    OLDEST,
    Environment("4.0", "3.13"),
    Environment("4.1", "3.11"),
    Environment("4.2", "3.12"),
    Environment("4.3", "3.11", "==2.2.*"),
    Environment("4.3", "3.13"),
    UNTRIED,
)
#: The versions of PySpark with which `--tests` runs, each in its first environment; `make test` has the newest one.
TESTED: Final = ("4.0", "4.1", "4.2")


def run_program(python: Path | str, variables: Mapping[str, str] | None = None) -> tuple[set[str], str]:
    """Runs the program with an interpreter; returns the steps that worked, and what else it prints.

    variables: for the environment of the program.
    """
    environment = {**_variables(), "PYSPARK_PYTHON": str(python), **(variables or {})}
    command = [str(python), str(PROGRAM)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    steps = set(done.stdout.splitlines()) & set(STEPS)
    return steps if done.returncode == 0 else steps - {STEPS[-1]}, done.stderr


def run_tests(pyspark: str) -> bool:
    """Runs tests/spark with a version of PySpark; returns whether all of them passed. Raises NotRun."""
    environment = next(one for one in ENVIRONMENTS if one.pyspark == pyspark)
    environment.make(FOR_TESTS)
    print(f"tests/spark with PySpark {pyspark}, Python {environment.python}", flush=True)
    command = [str(environment.interpreter), "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "tests/spark"]
    return subprocess.run(command, cwd=ROOT, env=_variables(), check=False).returncode == 0


def _variables() -> dict[str, str]:
    """The environment variables of this process, without the names by which another Spark or package would be found."""
    return {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")}


def find_python(version: str) -> str:
    """An interpreter of this machine: from PATH, pyenv or uv. Raises NotRun."""
    for path in _candidates(version):
        script = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([path, "-c", script], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return path
    raise NotRun(f"no Python {version} on this machine")


def _candidates(version: str) -> Iterator[str]:
    yield sys.executable
    if path := shutil.which(f"python{version}"):
        yield path
    yield from map(str, sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python")))
    if uv := shutil.which("uv"):
        found = subprocess.run([uv, "python", "find", version], capture_output=True, text=True, check=False)
        if found.returncode == 0:
            yield found.stdout.strip()


def row(environment: Environment) -> str:
    """Makes an environment, runs the program, and returns a row of the table."""
    versions = [environment.pyspark, environment.python]
    try:
        environment.make()
    except NotRun as why:
        return f"| {' | '.join(versions)} | | not run: {why} |" + " |" * (len(STEPS) - 1)
    steps, output = run_program(environment.interpreter)
    if steps != set(STEPS):
        print(output[-3_000:], file=sys.stderr)
    return (
        "| "
        + " | ".join(
            [*versions, environment.pandas_version(), *("works" if step in steps else "**fails**" for step in STEPS)]
        )
        + " |"
    )


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["--oldest"]:
        oldest().make()
        return 0
    if arguments[:1] == ["--tests"]:
        passed = [run_tests(pyspark) for pyspark in arguments[1:] or TESTED]
        return int(not all(passed))
    print("| PySpark | Python | pandas | " + " | ".join(STEPS) + " |")
    print("|" + "---|" * (3 + len(STEPS)), flush=True)
    failed = False
    for environment in ENVIRONMENTS:
        print(line := row(environment), flush=True)
        failed |= "**fails**" in line
    return int(failed)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except NotRun as why:
        sys.exit(f"not made: {why}")
