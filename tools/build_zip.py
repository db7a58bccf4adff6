"""Builds dist/spark_bull.zip, the package for `spark-submit --py-files` on clusters where it is not installed.

Equal files give equal bytes: the archive has neither times nor rights of files.
"""

from __future__ import annotations

import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

ROOT = Path(__file__).parent.parent
PACKAGES = ("spark_bull", "pyspark_bull")
SUFFIXES = (".py", ".pyi", ".lua", ".typed")


def build(target: Path) -> Path:
    """Writes the archive and replaces an existing one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with ZipFile(target, "w", ZIP_DEFLATED) as archive:
        files = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*")))
        for path in (ROOT / "LICENSE", *(path for path in files if path.suffix in SUFFIXES)):
            archive.writestr(ZipInfo(path.relative_to(ROOT).as_posix()), path.read_bytes(), ZIP_DEFLATED)
    return target


if __name__ == "__main__":
    print(build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist" / "spark_bull.zip"))
