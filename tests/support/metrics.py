"""Metrics of OpenTelemetry, in the form of tests/node/metrics.js."""

from __future__ import annotations

import json
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

Exported = dict[str, Any]


class MetricRecorder:
    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    def exported(self) -> list[Exported]:
        data = self._reader.get_metrics_data()
        resources = json.loads(data.to_json())["resource_metrics"] if data else []
        scopes = [scope for resource in resources for scope in resource["scope_metrics"]]
        return [_exported(metric) for scope in scopes for metric in scope["metrics"]]

    def values(self, name: str, attribute: str) -> dict[Any, Any]:
        """What the metric has of each value of an attribute; of a histogram, the count. {}: nothing was recorded."""
        points = [point for metric in self.exported() if metric["name"] == name for point in metric["points"]]
        found = {point["attributes"].get(attribute): point["value"] for point in points}
        return {key: value["count"] if isinstance(value, dict) else value for key, value in found.items()}


def _exported(metric: dict[str, Any]) -> Exported:
    points = [
        {
            "attributes": point["attributes"] or {},
            "value": {"count": point["count"], "bounds": point["explicit_bounds"]}
            if "explicit_bounds" in point
            else point["value"],
        }
        for point in metric["data"]["data_points"]
    ]
    is_histogram = any("explicit_bounds" in point for point in metric["data"]["data_points"])
    kind = "histogram" if is_histogram else "sum" if "is_monotonic" in metric["data"] else "gauge"
    return {name: metric[name] for name in ("name", "unit", "description")} | {"kind": kind, "points": points}


def in_order(exported: list[Exported]) -> list[Exported]:
    """The metrics and their points in an order that does not depend on who has recorded first."""

    def key(point: Any) -> list[tuple[str, str]]:
        return sorted(point["attributes"].items())

    return sorted(({**one, "points": sorted(one["points"], key=key)} for one in exported), key=lambda one: one["name"])
