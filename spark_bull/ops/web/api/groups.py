"""Groups of jobs: list, limits, pause and resume."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query

from spark_bull.core.queue.manage.limits import read_groups
from spark_bull.ops.web.documents import GroupList, LimitsPut
from spark_bull.ops.web.guard import unescaped
from spark_bull.ops.web.json_output import Json
from spark_bull.ops.web.queue_access import ExistingQueue
from spark_bull.ops.web.shown import document

router = APIRouter(tags=["groups"])

_GROUP: Final = "/queues/{queue}/groups/{group}"
GroupName = Annotated[str, Path(description="name of the group", min_length=1, max_length=10_000)]


@router.get("/queues/{queue}/groups", response_model=GroupList)
def list_groups(
    queue: ExistingQueue,
    limit: Annotated[int, Query(ge=1, le=1_000, description="maximum number of groups")] = 100,
    after: Annotated[str | None, Query(max_length=10_000, description="`next` of the page before")] = None,
) -> Json:
    """Lists the groups of jobs of the queue that workers of Spark have met, in an order of no meaning."""
    found = list(islice(read_groups(queue.handle, after), limit + 1))
    return Json({"groups": document(found[:limit]), "next": found[limit - 1].group if len(found) > limit else None})


@router.put(f"{_GROUP}/limits", status_code=204)
def set_group_limit(queue: ExistingQueue, group: GroupName, given: LimitsPut) -> None:
    """Sets limits of a group of jobs, for workers of Spark."""
    queue.set_group_limit(unescaped(group), **dict(given))


@router.delete(f"{_GROUP}/limits", status_code=204)
def remove_group_limit(queue: ExistingQueue, group: GroupName) -> None:
    """Removes the limits of a group of jobs, which has those of the workers then."""
    queue.remove_group_limit(unescaped(group))


@router.post(f"{_GROUP}/pause", status_code=204)
def pause_group(queue: ExistingQueue, group: GroupName) -> None:
    """Keeps workers of Spark from starting jobs of a group; its active jobs continue."""
    queue.pause_group(unescaped(group))


@router.post(f"{_GROUP}/resume", status_code=204)
def resume_group(queue: ExistingQueue, group: GroupName) -> None:
    """Lets workers start jobs of a group again."""
    queue.resume_group(unescaped(group))
