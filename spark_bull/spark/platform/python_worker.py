"""The Python processes in which Spark runs tasks, one after the other."""

from __future__ import annotations

import gc
from functools import cache


@cache
def freeze_loaded_objects() -> None:
    """Excludes what this process has loaded from the collection of garbage that Spark runs after each task.

    Nearly all objects belong to imported modules, and such a collection takes as long as a task of thousands of jobs.
    """
    gc.freeze()
