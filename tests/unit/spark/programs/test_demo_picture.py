"""The picture of the demo has titles and units, and no mean of a few flights."""

from __future__ import annotations

from types import ModuleType

import pandas as pd
import pytest


@pytest.fixture(scope="module")
def picture() -> ModuleType:
    """The module. Its import takes a second of CPU, so processes without these tests do not import it."""
    from spark_bull.spark.programs.demo import picture

    return picture


@pytest.fixture
def joined(picture: ModuleType) -> pd.DataFrame:
    return pd.DataFrame(
        [
            ("AA", "node", 300, 1.0),
            ("AA", "spark", 100, 2.0),
            ("OO", "spark", picture.MIN_FLIGHTS - 1, 9.0),
            ("UA", "spark", 500, -0.5),
        ],
        columns=["carrier", "worker", "flights", "score"],
    )


def test_both_charts_have_a_title_and_units(picture: ModuleType, joined: pd.DataFrame) -> None:
    left, right = picture.draw(joined).axes
    assert (left.get_title(), left.get_ylabel()) == ("Jobs by carrier and worker", "jobs (one per flight)")
    assert (right.get_title(), right.get_ylabel()) == (
        "Mean score of delays",
        "tanh(delay / 60 min) · ln(1 + distance / km)",
    )
    assert (left.get_xlabel(), right.get_xlabel()) == (
        "carrier",
        f"carrier with at least {picture.MIN_FLIGHTS} flights",
    )


def test_carriers_are_sorted_by_flights_and_have_weighted_means(picture: ModuleType, joined: pd.DataFrame) -> None:
    left, right = picture.draw(joined).axes
    assert [label.get_text() for label in left.get_xticklabels()] == ["UA", "AA", "OO"]
    assert [label.get_text() for label in right.get_xticklabels()] == ["UA", "AA"]
    assert [bar.get_height() for bar in right.containers[0]] == [-0.5, 1.25]


def test_without_a_carrier_with_enough_flights_there_are_no_means(picture: ModuleType, joined: pd.DataFrame) -> None:
    _, right = picture.draw(joined[joined["carrier"] == "OO"]).axes
    assert not right.containers[0]
