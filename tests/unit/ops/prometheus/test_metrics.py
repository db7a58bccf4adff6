"""The dashboard for Grafana, the text for Prometheus, and the slots that a queue needs by its statistics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from spark_bull.core.model.queues import JobStats
from spark_bull.ops.prometheus.collect import wanted_slots_of
from spark_bull.ops.prometheus.families import FAMILIES, RUN, Sample, as_text

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[4] / "conf" / "grafana-dashboard.json").read_text("utf-8")
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
    # The rate of the counter is shown; the other one is not of a queue.
    left_out = {"spark_bull_jobs_added_per_second", "spark_bull_queues_unread"}
    assert {metric for query in queries() for metric in metrics_in(query)} == METRICS - left_out


def test_each_panel_queries_the_chosen_queues_of_the_chosen_data_source() -> None:
    assert {variable["name"] for variable in DASHBOARD["templating"]["list"]} == {"datasource", "queue"}
    for panel in PANELS:
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            assert target["datasource"] == panel["datasource"]
            assert 'queue=~"$queue"' in target["expr"], panel["title"]


# The library splits lines at \r and other characters, as Prometheus does not.
VALUES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp"), include_characters="\n"))


@given(st.lists(st.tuples(VALUES, VALUES, st.integers(0, 10**15) | st.floats(0, 1e15)), min_size=1), VALUES)
def test_names_and_values_are_read_as_they_were_written(given_samples: list[tuple[str, str, float]], zone: str) -> None:
    samples = [Sample(RUN, {"queue": queue, "name": name}, value) for queue, name, value in given_samples]
    (family,) = text_string_to_metric_families(as_text(samples, {"zone": zone}) + "\n")
    assert (family.name, family.type, family.documentation) == (RUN.name, RUN.kind, RUN.help)
    read = [(one.labels, one.value) for one in family.samples]
    expected = [({"queue": queue, "name": name, "zone": zone}, value) for queue, name, value in given_samples]
    assert read == [(labels, pytest.approx(value)) for labels, value in expected]


def test_names_of_metrics_follow_the_rules_of_prometheus() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert family.name.startswith(("bullmq_", "spark_bull_"))
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert not set(family.help) & set("\\\n")


STATS: dict[str, Any] = dict.fromkeys(("name", "oldest_waiting_ms", "wait", "run", "added_per_s", "added_over_ms"))
STATS |= {"queue": "mail", "jobs": {}, "is_estimate": False, "timed": 0, "work_ms": 0}
STATS |= {"finished_per_s": 0.0, "finished_over_ms": 60_000}


@pytest.mark.parametrize(
    ("stats", "wanted"),
    [
        ({}, 0),
        ({"jobs": {"delayed": 5, "completed": 9}}, 0),
        ({"jobs": {"active": 5}}, 1),
        # Nothing is known of the duration: one slot, which shows it.
        ({"jobs": {"wait": 10_000}}, 1),
        ({"jobs": {"wait": 10_000}, "work_ms": None, "finished_per_s": None}, 1),
        # 60 jobs of 2 s within 30 s.
        ({"jobs": {"wait": 40, "prioritized": 20}, "timed": 10, "work_ms": 20_000}, 4),
        # A job of 2 s each 100 ms keeps 20 slots busy.
        ({"timed": 10, "work_ms": 20_000, "finished_per_s": 10.0}, 20),
        # Only 100 of 600 jobs that have ended were read; the work is the work of all 600.
        ({"timed": 100, "work_ms": 600_000, "finished_per_s": 10.0}, 10),
    ],
)
def test_slots_keep_up_with_the_queue_and_start_what_waits_in_time(stats: dict[str, Any], wanted: int) -> None:
    assert wanted_slots_of(JobStats(**{**STATS, **stats}), 60_000, 100, 30.0) == wanted
