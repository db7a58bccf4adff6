"""A Python with all packages of this one, except spark_bull, as on a cluster to which --py-files sends it."""

from __future__ import annotations

import os
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

from tools.compiled_pyspark import FILE, LINE

#: Environment variables that could make the package available.
_TELLING = ("PYTHONPATH", "SPARK_CONF_DIR", "PYSPARK_DRIVER_PYTHON")


def bare_python(folder: Path) -> Path:
    """Creates a virtual environment in the folder, and returns its interpreter.

    The packages of this Python are on its path, but Python does not read .pth files there, such as that of an editable
    install of this checkout.
    """
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    python = folder / "bin" / "python"
    library = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    installed = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (Path(library) / "installed.pth").write_text("\n".join(installed) + "\n")
    (Path(library) / FILE).write_text(LINE)
    return python


def bare_environment(python: Path) -> Mapping[str, str]:
    """Environment variables for Spark with that Python, for driver and workers."""
    kept = {name: value for name, value in os.environ.items() if name not in _TELLING}
    return {**kept, "PYSPARK_PYTHON": str(python), "SPARK_HOME": str(Path(sysconfig.get_path("purelib")) / "pyspark")}
