"""The Python processes in which Spark runs tasks, one after the other."""

from __future__ import annotations

import gc
from socket import gethostname
from typing import Final

from pyspark import TaskContext

from spark_bull.core.store.client import name_machine

#: Objects that a collection of garbage examines in about a millisecond.
FEW_OBJECTS: Final = 10_000


def begin_task() -> None:
    """Lets errors of connections name this machine, and excludes what this process has loaded from later collections.

    Spark collects garbage after each task. Nearly all objects belong to imported modules, and a collection takes as
    long as a task of thousands of jobs. The first task imports further modules, which are excluded when the second one
    begins, after a collection.
    """
    if TaskContext.get() is not None:
        name_machine(gethostname())
    if len(gc.get_objects()) > FEW_OBJECTS:
        gc.freeze()
