"""Adds the page to the application."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from fastapi import FastAPI
from fastapi.responses import FileResponse
from starlette.staticfiles import StaticFiles

from spark_bull.core.errors import SparkBullError
from spark_bull.core.queue.jobs.read import counting
from spark_bull.ops.web.page import actions, api_reference, job, jobs, login, overview, parts_of_queue, questions
from spark_bull.ops.web.page.history import SAMPLED_QUEUES, Counts, History
from spark_bull.ops.web.queue_access import Queues

_STATIC: Final = Path(__file__).with_name("static")


def add_page(app: FastAPI) -> None:
    """Adds the routes, styles and scripts of the page."""
    app.state.overview = overview.Overview(app.state.queues)
    app.state.history = History(partial(_sampled_counts, app.state.queues))
    app.mount("/static", StaticFiles(directory=_STATIC), "static")
    app.add_api_route("/favicon.ico", _icon, include_in_schema=False)
    for part in (overview, jobs, job, parts_of_queue, questions, actions, login, api_reference):
        app.include_router(part.router)


def _sampled_counts(queues: Queues) -> Mapping[str, Counts]:
    """The counts of the queues that can be read."""
    names = queues.names()[:SAMPLED_QUEUES]
    found = zip(names, queues.read(counting, names), strict=True)
    return {name: counts for name, counts in found if not isinstance(counts, SparkBullError)}


def _icon() -> FileResponse:
    """The icon of documents that name none, such as texts."""
    return FileResponse(_STATIC / "icon.svg")
