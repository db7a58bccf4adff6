"""What the beginning of a task does to the process, which runs tasks of other programs, too."""

from __future__ import annotations

import gc
import weakref

from spark_bull.spark.platform.datasource import begin_task


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_what_a_task_leaves_behind_is_collected_after_the_next_one_has_begun() -> None:
    begin_task()
    left = [Cycle() for _ in range(20_000)]
    one = weakref.ref(left[0])
    begin_task()
    del left
    gc.collect()
    assert one() is None
