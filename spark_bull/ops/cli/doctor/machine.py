"""Checks of this machine: Java, Python and packages, as a Spark driver needs them. Nothing of Spark is imported."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from spark_bull.core.version import VERSION
from spark_bull.ops.cli.doctor.finding import Finding, ok, problem, warning

#: The Java of Spark 4.
MIN_JAVA: Final = 17
#: The packages whose versions matter, without and with Spark.
PACKAGES: Final = ("redis",)
OF_SPARK: Final = ("pyspark", "pandas", "pyarrow")
#: Makes the Python processes of Spark import the compiled PySpark; see docs/howto/production.md.
COMPILED_PYSPARK: Final = "compiled_pyspark.pth"
_TIMEOUT_S: Final = 30.0
#: Prints the version of a Python, then the packages that it lacks.
_SCRIPT: Final = (
    "import sys; from importlib.util import find_spec; "
    "print('%d.%d' % sys.version_info[:2], *[name for name in sys.argv[1:] if not find_spec(name)])"
)


def find_java() -> str | None:
    """The path of the Java that Spark starts; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home, "bin")) if home else None)


def java() -> Iterator[Finding]:
    """The Java that Spark starts."""
    path = find_java()
    install = f"install Java {MIN_JAVA} and set JAVA_HOME to its folder"
    if path is None:
        where = "JAVA_HOME" if os.environ.get("JAVA_HOME") else "PATH"
        yield warning(f"no Java in {where}: Spark does not start here", install)
        return
    printed = _output(path, "-version")
    found = re.search(r'version "(\d+)(?:\.(\d+))?', printed)
    if found is None:
        yield problem(f"{path} does not print its version: {printed.strip()[:200]!r}", install)
        return
    major = int(found[2] or 0) if found[1] == "1" else int(found[1])
    if major < MIN_JAVA:
        yield problem(f"Java {major} at {path}: expected {MIN_JAVA} or newer", install)
    else:
        yield ok(f"Java {major} at {path}")


def python() -> Iterator[Finding]:
    """This Python, and the one that Spark starts for its Python processes."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    yield ok(f"Python {own} at {sys.executable}")
    given = os.environ.get("PYSPARK_PYTHON", "")
    path = shutil.which(given or "python3")
    advice = f"export PYSPARK_PYTHON={sys.executable}"
    wrong = problem if given else warning
    of_spark = f"Spark starts {given or 'python3'} ({'PYSPARK_PYTHON' if given else 'PYSPARK_PYTHON is not set'})"
    if path is None:
        yield wrong(f"{of_spark}, which does not exist here", advice)
        return
    found, *missing = _output(path, "-c", _SCRIPT, *OF_SPARK, *PACKAGES, "msgpack", stdout_only=True).split() or [""]
    if found != own:
        yield wrong(f"{of_spark}, which is Python {found or '?'}: expected {own} as on the driver", advice)
    elif missing:
        yield wrong(f"{of_spark}, which lacks {', '.join(missing)}", advice)
    else:
        yield ok(f"{of_spark}: Python {found} with all packages")


def packages() -> Iterator[Finding]:
    """The versions of the packages that this project needs."""
    yield ok(f"spark-bull {VERSION}")
    required = requirements()
    names = [*PACKAGES]
    if any(find_spec(name) for name in OF_SPARK):
        names += OF_SPARK
    else:
        yield ok("no Spark here: `pip install 'spark-bull[spark]'` adds it; queues and LocalWorker need none")
    for name in names:
        bounds = required.get(name, "")
        expected = f"expected {name}{bounds}"
        install = f"{sys.executable} -m pip install '{name}{bounds}'"
        try:
            found = version(name)
        except PackageNotFoundError:
            yield problem(f"{name} is not installed: {expected}", install)
            continue
        if _is_within(found, bounds):
            yield ok(f"{name} {found}")
        else:
            yield problem(f"{name} {found}: {expected}", install)


def requirements() -> dict[str, str]:
    """The bounds of the versions of the packages that this one and its extra `spark` require, such as `>=2.2,<3`.

    Empty in an archive.
    """
    try:
        declared = requires("spark-bull") or []
    except PackageNotFoundError:
        return {}
    parsed = [re.match(r"([\w-]+)(?:\[.*\])?([^;]*)(?:; extra == .spark.)?$", one) for one in declared]
    return {one[1]: ",".join(sorted(one[2].strip().split(","), reverse=True)) for one in parsed if one}


def _is_within(found: str, bounds: str) -> bool:
    """Whether a version is within bounds of the kinds `>=` and `<`."""
    numbers = _numbers(found)
    return all(
        numbers >= _numbers(limit) if kind == ">=" else numbers < _numbers(limit)
        for kind, limit in re.findall(r"(>=|<)([\d.]+)", bounds)
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def compiled_pyspark() -> Iterator[Finding]:
    """Whether Python processes of Spark compile PySpark each time, as with PySpark from pip."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return
    folder = Path(spec.origin).parent
    if not (folder / "python" / "lib" / "pyspark.zip").exists():
        return
    if (folder.parent / COMPILED_PYSPARK).exists():
        yield ok("Python processes of Spark import the compiled PySpark")
    else:
        yield ok(
            "each Python process of Spark compiles PySpark, 1.3 s of CPU",
            f"optional: create {folder.parent / COMPILED_PYSPARK}, as docs/howto/production.md shows under Tune",
        )


def _output(*command: str, stdout_only: bool = False) -> str:
    """What a program prints; empty if it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if stdout_only else done.stdout + done.stderr
