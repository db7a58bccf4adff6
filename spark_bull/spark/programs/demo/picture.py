"""The picture of the demo: who processed the flights of each carrier, and how late they were."""

from __future__ import annotations

from typing import Final

import pandas as pd
from matplotlib.figure import Figure

#: A carrier with fewer flights has no mean score: single flights would decide it.
MIN_FLIGHTS: Final = 30


def draw(joined: pd.DataFrame) -> Figure:
    """Draws jobs by carrier and worker, and mean scores by carrier.

    joined: the columns carrier, worker, flights, and score (the mean of the flights).
    """
    flown = joined.pivot_table(index="carrier", columns="worker", values="flights", aggfunc="sum").fillna(0)
    total = flown.sum(axis="columns").sort_values(ascending=False)
    weighted = (joined["score"] * joined["flights"]).groupby(joined["carrier"]).sum()
    scores = (weighted / total)[total.index[total >= MIN_FLIGHTS]]

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    flown.loc[total.index].plot.bar(stacked=True, ax=left, rot=0)
    left.set(title="Jobs by carrier and worker", xlabel="carrier", ylabel="jobs (one per flight)")
    left.legend(title="worker")
    right.bar(list(scores.index), list(scores), width=0.5, color="tab:red")
    right.set(
        title="Mean score of delays",
        xlabel=f"carrier with at least {MIN_FLIGHTS} flights",
        ylabel="tanh(delay / 60 min) · ln(1 + distance / km)",
    )
    right.axhline(0, color="black", linewidth=0.8)
    return figure
