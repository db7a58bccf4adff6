"""The dashboard for Grafana in conf/: it shows metrics that are exported, in panels that do not overlap."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

from spark_bull.prometheus.families import FAMILIES

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "conf" / "grafana-dashboard.json").read_text("utf-8")
)
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
METRICS = {family.name for family in FAMILIES}


def queries() -> Iterator[str]:
    """The queries of the panels and of the variables."""
    for panel in PANELS:
        for target in panel["targets"]:
            yield target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def metrics_in(query: str) -> set[str]:
    return set(re.findall(r"\b(?:bullmq|spark_bull)_\w+", re.sub(r'"[^"]*"', "", query)))


def test_each_metric_of_the_dashboard_is_exported() -> None:
    for query in queries():
        assert metrics_in(query), query
        assert metrics_in(query) <= METRICS, query


def test_each_metric_is_in_the_dashboard_or_told_to_be_left_out() -> None:
    # The rate of the counter is shown.
    left_out = {"spark_bull_jobs_added_per_second"}
    assert {metric for query in queries() for metric in metrics_in(query)} == METRICS - left_out


def test_each_panel_queries_the_chosen_queues_of_the_chosen_data_source() -> None:
    assert {variable["name"] for variable in DASHBOARD["templating"]["list"]} == {"datasource", "queue"}
    for panel in PANELS:
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"]
            assert 'queue=~"$queue"' in target["expr"], panel["title"]


def test_panels_have_places_of_their_own() -> None:
    def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
        place = panel["gridPos"]
        return {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}

    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert all(x < 24 for panel in PANELS for x, _ in cells(panel))
    for one, other in combinations(PANELS, 2):
        assert not cells(one) & cells(other), (one["title"], other["title"])
