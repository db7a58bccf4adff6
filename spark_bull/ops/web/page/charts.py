"""The data of the charts: a list of times, s since 1970, and a line per state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from spark_bull.core.clock import epoch_ms
from spark_bull.core.model.jobs import MINUTE_MS, STATES, QueueMetrics
from spark_bull.ops.web.page.history import Sample

Chart = dict[str, Any]

#: Without the completed jobs: there are so many that the other lines would be flat.
_SHOWN_STATES: Final = tuple(state for state in STATES if state != "completed")
#: Minutes of the chart of rates.
MINUTES: Final = 120
#: Points of the chart of samples, about.
_POINTS: Final = 240


def chart_of_samples(samples: Sequence[Sample]) -> Chart:
    """Jobs by state over time; states that have had no job are left out."""
    step = -(-len(samples) // _POINTS) or 1
    shown = samples[::-1][::step][::-1]
    return {
        "times": [sample.time / 1000 for sample in shown],
        "series": [
            {"label": state, "state": state, "values": [sample.counts.get(state, 0) for sample in shown]}
            for state in _SHOWN_STATES
            if any(sample.counts.get(state) for sample in shown)
        ],
    }


def chart_of_metrics(metrics: Sequence[QueueMetrics]) -> Chart | None:
    """Jobs that have ended per minute, of the last two hours, without the current one; None if nothing was counted."""
    counted = [each for each in metrics if each.minutes]
    if not counted:
        return None
    last = epoch_ms() // MINUTE_MS
    minutes = range(last - MINUTES, last)
    return {
        "times": [minute * 60 for minute in minutes],
        "series": [
            {
                "label": state,
                "state": state,
                "values": [
                    sum(each.minutes.get(minute * MINUTE_MS, 0) for each in counted if each.state == state)
                    for minute in minutes
                ],
            }
            for state in ("completed", "failed")
        ],
    }
