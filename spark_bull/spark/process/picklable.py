"""Whether the functions of a worker can be sent to other processes."""

from __future__ import annotations

from typing import Any

from pyspark import cloudpickle

from spark_bull.errors import OptionError


def check_picklable(**arguments: Any) -> None:
    """Raises OptionError if a function among these arguments of a worker cannot be pickled."""
    for name, argument in arguments.items():
        try:
            cloudpickle.dumps(argument)
        except Exception as error:
            raise OptionError(
                f"expected `{name}` to be picklable, as it is sent to other processes, "
                f"got {type(error).__name__}: {error}; open connections, locks and files inside the function"
            ) from error
