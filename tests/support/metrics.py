"""Metrics of OpenTelemetry, in the form of tests/node/metrics.js."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, Histogram, HistogramDataPoint, InMemoryMetricReader, Metric

Exported = dict[str, Any]


class MetricRecorder:
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
