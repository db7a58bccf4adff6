"""Bull and BullMQ queues in Apache Spark: dispatch, inspect, process and collect jobs.

    import spark_bull
    spark_bull.register(spark)
    df.write.format("bull").option("queue", "mail").mode("append").save()
    with spark_bull.Worker(spark, queue="mail", processor=send) as worker:
        worker.await_termination()

The public names are imported lazily, so that `spark_bull.BullQueue` and the command line do not import PySpark.
The names and their modules are listed once, in the stub `__init__.pyi`, which type checkers read, too.
"""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import get_data
from typing import Final

from spark_bull.core.version import VERSION

__version__: Final = VERSION

_STUB: Final = (get_data(__name__, "__init__.pyi") or b"").decode()
#: The modules of the public names.
_MODULES: Final = {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as \2$", _STUB, re.MULTILINE)}

__all__ = sorted([*_MODULES, "__version__"])


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
