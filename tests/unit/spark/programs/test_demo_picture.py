"""The picture of the demo has titles and units, and no mean of a few flights."""

from __future__ import annotations

import pandas as pd


def test_charts_have_titles_and_units_and_no_mean_of_a_few_flights() -> None:
    # The import takes a second of CPU, so processes without this test do not import it.
    from spark_bull.spark.programs.demo import run as picture

    rows = [("AA", "node", 300, 1.0), ("AA", "spark", 100, 2.0)]
    rows += [("OO", "spark", picture.MIN_FLIGHTS - 1, 9.0), ("UA", "spark", 500, -0.5)]
    joined = pd.DataFrame(rows, columns=["carrier", "worker", "flights", "score"])
    left, right = picture.draw(joined).axes
    assert (left.get_title(), left.get_ylabel()) == ("Jobs by carrier and worker", "jobs (one per flight)")
    units = "tanh(delay / 60 min) · ln(1 + distance / km)"
    assert (right.get_title(), right.get_ylabel()) == ("Mean score of delays", units)
    few = f"carrier with at least {picture.MIN_FLIGHTS} flights"
    assert (left.get_xlabel(), right.get_xlabel()) == ("carrier", few)
    assert [label.get_text() for label in left.get_xticklabels()] == ["UA", "AA", "OO"]
    assert [label.get_text() for label in right.get_xticklabels()] == ["UA", "AA"]
    assert [bar.get_height() for bar in right.containers[0]] == [-0.5, 1.25]
    _, without = picture.draw(joined[joined["carrier"] == "OO"]).axes
    assert not without.containers[0]
