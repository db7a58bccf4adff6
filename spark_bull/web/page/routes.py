"""Adds the page to the application."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fastapi import FastAPI
from starlette.staticfiles import StaticFiles

from spark_bull.web.page import actions, job, jobs, login, overview, parts_of_queue, questions
from spark_bull.web.page.history import MAX_QUEUES, History
from spark_bull.web.page.readers import KnownReaders

_STATIC: Final = Path(__file__).with_name("static")


def add_page(app: FastAPI) -> None:
    """Adds the routes, styles and scripts of the page."""
    queues = app.state.queues
    app.state.history = History(lambda: {name: queues.open(name).counts() for name in queues.names()[:MAX_QUEUES]})
    app.state.readers = KnownReaders()
    app.mount("/static", StaticFiles(directory=_STATIC), "static")
    for part in (overview, jobs, job, parts_of_queue, questions, actions, login):
        app.include_router(part.router)
