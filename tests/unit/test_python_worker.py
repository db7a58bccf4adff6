"""Tests of what tasks do with the Python process in which they run."""

from __future__ import annotations

import gc

from spark_bull.option_table import SETTLE
from spark_bull.options import parse_options
from spark_bull.spark.process.settle import SettlePlan, settle_task
from spark_bull.spark.python_worker import freeze_loaded_objects


def test_a_task_excludes_loaded_modules_from_the_collection_of_garbage() -> None:
    gc.unfreeze()
    freeze_loaded_objects.cache_clear()
    try:
        settle_task(SettlePlan(parse_options({}, SETTLE), names=(), is_text=False), iter(()))
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
