"""Metrics that tests read: of OpenTelemetry, in the form of tests/node/metrics.js, and of a real Prometheus."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, Histogram, HistogramDataPoint, InMemoryMetricReader, Metric

from tests.support.network import new_listener
from tests.support.wait import PATIENCE_S, wait_until

Exported = dict[str, Any]


class MetricRecorder:
    """A MeterProvider of the SDK, and what it has recorded."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    def exported(self) -> list[Exported]:
        data = self._reader.get_metrics_data()
        if data is None:
            return []
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        return [_exported(metric) for scope in scopes for metric in scope.metrics]

    def values(self, name: str, attribute: str) -> dict[Any, Any]:
        """What the metric has of each value of an attribute; of a histogram, the count. {}: nothing was recorded."""
        found = [one for one in self.exported() if one["name"] == name]
        return {
            point["attributes"].get(attribute): point["value"]["count"]
            if isinstance(point["value"], dict)
            else point["value"]
            for metric in found
            for point in metric["points"]
        }


def _exported(metric: Metric) -> Exported:
    kinds = {Gauge: "gauge", Histogram: "histogram"}
    points = [
        {
            "attributes": dict(point.attributes or {}),
            "value": {"count": point.count, "bounds": list(point.explicit_bounds)}
            if isinstance(point, HistogramDataPoint)
            else point.value,  # type: ignore[union-attr]
        }
        for point in metric.data.data_points
    ]
    kind = kinds.get(type(metric.data), "sum")
    return {
        "name": metric.name,
        "unit": metric.unit,
        "description": metric.description,
        "kind": kind,
        "points": points,
    }


def in_order(exported: list[Exported]) -> list[Exported]:
    """The metrics and their points in an order that does not depend on who has recorded first."""

    def key(point: Any) -> list[tuple[str, str]]:
        return sorted(point["attributes"].items())

    return sorted(({**one, "points": sorted(one["points"], key=key)} for one in exported), key=lambda one: one["name"])


RULES = Path(__file__).parents[2] / "conf" / "prometheus-alerts.yml"


def is_installed() -> bool:
    return all(map(shutil.which, ("prometheus", "promtool")))


class Prometheus:
    """A server at `url`, with the rules of conf/."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer of the API."""
        with urlopen(f"{self._url}/api/v1/{path}?{urlencode(parameters)}", timeout=PATIENCE_S) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression, now."""
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found


@contextmanager
def prometheus(target: str, folder: Path) -> Iterator[Prometheus]:
    """Runs a server that scrapes `target`, such as 127.0.0.1:9090, each second."""
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "bull", "static_configs": [{"targets": [target]}]}],
    }
    # JSON is YAML, too.
    (folder / "prometheus.yml").write_text(json.dumps(settings), "utf-8")
    with new_listener() as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    arguments = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (
        (folder / "prometheus.log").open("w") as log,
        subprocess.Popen(
            ["prometheus", *arguments, f"--web.listen-address={address}"], stdout=log, stderr=log
        ) as process,
    ):
        try:
            server = Prometheus(f"http://{address}")
            wait_until(lambda: _answers(server), "Prometheus to answer")
            yield server
        finally:
            process.terminate()


def _answers(server: Prometheus) -> bool:
    try:
        server.ask("rules")
    except URLError:
        return False
    return True
