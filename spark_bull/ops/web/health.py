"""Probes of orchestrators and load balancers. They need no token, and show nothing of the queues."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from spark_bull.ops.web.problems import ALIVE, READY
from spark_bull.ops.web.queue_access import AllQueues

router: Final = APIRouter(include_in_schema=False)


@router.get(ALIVE)
async def alive() -> PlainTextResponse:
    """Whether the server runs; nothing about Redis, as a restart of the server would not help."""
    return PlainTextResponse("ok\n")


@router.get(READY)
def ready(queues: AllQueues) -> PlainTextResponse:
    """Whether queues can be read. Raises ConnectionLost, also for a cluster that is down but answers PING."""
    queues.check_readable()
    return PlainTextResponse("ok\n")
