"""A Python that has all that this one has installed, but not spark_bull: as on a cluster to which it is sent along."""

from __future__ import annotations

import os
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

#: Where this Python, and a user of this checkout, say that the package is.
_TELLING = ("PYTHONPATH", "SPARK_CONF_DIR", "PYSPARK_DRIVER_PYTHON")


def bare_python(folder: Path) -> Path:
    """Makes an environment in the folder, and returns its interpreter.

    The packages of this Python are on its path; but the .pth files among them, such as that of an editable install of
    this checkout, count only in the folder that they were installed to, and so for nothing there.
    """
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    python = folder / "bin" / "python"
    library = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    installed = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (Path(library) / "installed.pth").write_text("\n".join(installed) + "\n")
    return python


def bare_environment(python: Path) -> Mapping[str, str]:
    """Environment variables for Spark with that Python, driver and workers alike."""
    kept = {name: value for name, value in os.environ.items() if name not in _TELLING}
    return {**kept, "PYSPARK_PYTHON": str(python), "SPARK_HOME": str(Path(sysconfig.get_path("purelib")) / "pyspark")}
