"""Objects for a process that Spark does not give the files of `--py-files`.

The process of a streaming source looks for those files in a folder that isn't there (`streaming_job`, below the one
that holds them), so it can't import the class of what it gets. Therefore `load` travels along, by value, with the
module path of the process that made the object: that one has the files, on the same machine.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from importlib import invalidate_caches
from typing import Any

from pyspark import cloudpickle


def load(path: Sequence[str], pickled: bytes) -> Any:
    """Makes the object; where a module that it needs is not found, `path` is searched as well."""
    try:
        make, arguments = pickle.loads(pickled)
    except ModuleNotFoundError:
        sys.path.extend(path)
        invalidate_caches()
        make, arguments = pickle.loads(pickled)
    return make(*arguments)


def sent_along(make: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    """What `__reduce__` returns for an object that `make` makes."""
    return load, (tuple(sys.path), cloudpickle.dumps((make, arguments)))


# Else `load` would travel by its name, to be imported from the package that it is to find.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
