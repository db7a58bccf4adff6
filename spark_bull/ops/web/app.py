"""The application: the API and the page."""

from __future__ import annotations

from fastapi import Depends, FastAPI

from spark_bull.core.version import VERSION
from spark_bull.ops.web.access import Access, authorize
from spark_bull.ops.web.api import activity, changes, events, groups, jobs, queues
from spark_bull.ops.web.api.description import router as description
from spark_bull.ops.web.api.parameters import known_parameters
from spark_bull.ops.web.event_streams import StreamSlots
from spark_bull.ops.web.guard import Guard
from spark_bull.ops.web.health import router as health
from spark_bull.ops.web.page.errors import error_page
from spark_bull.ops.web.page.routes import add_page
from spark_bull.ops.web.problems import handle_errors
from spark_bull.ops.web.queue_access import Queues
from spark_bull.ops.web.readers import KnownReaders
from spark_bull.ops.web.settings import WebSettings


def create_app(settings: WebSettings) -> FastAPI:
    """Creates the application. Redis is reached with the first request.

    Parameters:
      settings: the settings.

    Returns:
      An ASGI application.

    Raises:
      OptionError: for a wrong URL of Redis.
    """
    app = FastAPI(
        title="spark_bull",
        version=VERSION,
        description="Queues of Bull and BullMQ. Times are ms since 1970, durations ms, unless a name says otherwise.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.state.settings = settings
    app.state.access = Access(settings)
    app.state.queues = Queues(settings)
    app.state.streams = StreamSlots()
    app.state.readers = KnownReaders()
    handle_errors(app, error_page)
    for router in (health, description):
        app.include_router(router)
    for router in (queues.router, jobs.router, changes.router, activity.router, groups.router, events.router):
        app.include_router(router, prefix="/api", dependencies=[Depends(authorize), Depends(known_parameters)])
    add_page(app)
    app.add_middleware(Guard, settings=settings)
    return app
