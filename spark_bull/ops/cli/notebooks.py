"""`spark-bull notebooks`: copies the notebooks of the package to a folder."""

from __future__ import annotations

import shutil
from argparse import Namespace
from pathlib import Path
from typing import Final

from spark_bull.core.errors import SparkBullError
from spark_bull.ops.cli.arguments import argument
from spark_bull.ops.cli.command import Output, command

_NOTEBOOKS: Final = Path(__file__).parents[2] / "notebooks"


def _copy(args: Namespace) -> Output:
    folder: Path = args.folder
    sources = sorted(_NOTEBOOKS.glob("*.ipynb"))
    if not sources:
        raise SparkBullError(f"expected notebooks in {_NOTEBOOKS}, found none: install the package by pip")
    for source in sources:
        if (folder / source.name).exists():
            raise SparkBullError(f"{folder / source.name} exists: give a folder without it")
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources:
        shutil.copyfile(source, folder / source.name)
    return [str(folder / source.name) for source in sources]


NOTEBOOKS: Final = command(
    "notebooks",
    "copy notebooks with examples and charts to a folder, where `jupyter lab` opens them",
    "notebooks ~/spark-bull",
    _copy,
    argument("folder", type=Path, nargs="?", default=Path("notebooks"), help="(default: notebooks)"),
    of_queue=False,
)
