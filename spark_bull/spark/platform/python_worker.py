"""The Python processes in which Spark runs tasks, one after the other."""

from __future__ import annotations

import gc
from typing import Final

#: Objects that a collection of garbage examines in about a millisecond.
FEW_OBJECTS: Final = 10_000


def freeze_loaded_objects() -> None:
    """Excludes what this process has loaded from the collection of garbage that Spark runs after each task.

    Nearly all objects belong to imported modules, and such a collection takes as long as a task of thousands of jobs.
    The first task imports further modules, which are excluded when the second one begins, after a collection.
    """
    if len(gc.get_objects()) > FEW_OBJECTS:
        gc.freeze()
