"""The report of a benchmark: targets, results, and the machine."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis import Redis

from benchmarks.stock import stock_redis
from spark_bull.core.store.servers import name_and_version

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Verdict:
    """A target and the measured result."""

    what: str
    wanted: str
    got: str
    kept: bool


def at_least(what: str, target: float, got: float, unit: str = "") -> Verdict:
    return Verdict(what, f">= {target:,.10g}{unit}", _short(got) + unit, got >= target)


def at_most(what: str, target: float, got: float, unit: str = "") -> Verdict:
    return Verdict(what, f"<= {_short(target)}{unit}", _short(got) + unit, got <= target)


def _short(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.2f}"


def percentile(values: Sequence[float], percent: float) -> float:
    """Returns a percentile by the nearest-rank method."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def show_verdicts(verdicts: Iterable[Verdict]) -> None:
    print()
    for verdict in verdicts:
        print(f"{'ok ' if verdict.kept else 'NOT'}  {verdict.what:70}{verdict.wanted:>14}   {verdict.got}")


def write_results(name: str, report: dict[str, Any]) -> None:
    """Writes all figures and a description of the machine to results/<name>.json."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"machine": machine(), **report}, indent=2)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def machine() -> dict[str, object]:
    """Describes the machine; `load` is the load average, which shows other activity."""
    models = [line.split(":")[1] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    node = subprocess.run(["node", "--version"], check=True, capture_output=True, text=True).stdout.strip()
    with stock_redis() as server, Redis.from_url(server.url) as client:
        redis = " ".join(name_and_version(client.info("server")))
    return {
        "cpu": f"{os.cpu_count()} x {models[0].strip() if models else platform.machine()}",
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "load": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "node": node,
        "redis": redis,
    }
