"""The text for Prometheus is what its client library reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from spark_bull.prometheus.families import FAMILIES, JOB_COUNT, RUN, Sample
from spark_bull.prometheus.text import as_text

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


def test_samples_of_a_metric_are_together_and_metrics_without_samples_are_left_out() -> None:
    samples = [Sample(family, {"queue": queue}, 1) for queue in "ab" for family in (RUN, JOB_COUNT)]
    assert as_text(samples).splitlines() == [
        f"# HELP bullmq_job_count {JOB_COUNT.help}",
        "# TYPE bullmq_job_count gauge",
        'bullmq_job_count{queue="a"} 1',
        'bullmq_job_count{queue="b"} 1',
        f"# HELP spark_bull_job_run_seconds {RUN.help}",
        "# TYPE spark_bull_job_run_seconds gauge",
        'spark_bull_job_run_seconds{queue="a"} 1',
        'spark_bull_job_run_seconds{queue="b"} 1',
    ]
    assert as_text([]) == ""


def test_names_of_metrics_follow_the_rules_of_prometheus() -> None:
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert family.name.startswith(("bullmq_", "spark_bull_"))
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert not set(family.help) & set("\\\n")
