"""Pickles objects for a process that cannot import the files of `--py-files`.

Spark's process of a streaming source searches these files in a folder that does not exist: `streaming_job`, inside the
right one. So it cannot import the class of the object that it receives. `load` is therefore pickled by value, together
with the module search path of the pickling process, which runs on the same machine and can import the files.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from importlib import invalidate_caches
from typing import Any

from pyspark import cloudpickle


def load(path: Sequence[str], pickled: bytes) -> Any:
    """Unpickles and creates the object. If a module is not found, `path` is added to the search path."""
    try:
        make, arguments = pickle.loads(pickled)
    except ModuleNotFoundError:
        sys.path.extend(path)
        invalidate_caches()
        make, arguments = pickle.loads(pickled)
    return make(*arguments)


def sent_along(make: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
    """Returns the result of `__reduce__` for an object created by `make(*arguments)`."""
    return load, (tuple(sys.path), cloudpickle.dumps((make, arguments)))


# By default `load` would be pickled by reference, and imported from the package that cannot be imported.
cloudpickle.register_pickle_by_value(sys.modules[__name__])
