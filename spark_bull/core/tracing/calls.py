"""Calls of OpenTelemetry."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from spark_bull.core.error_text import described
from spark_bull.core.errors import SparkBullError

log = logging.getLogger("spark_bull")

T = TypeVar("T")


class Calls:
    """Calls OpenTelemetry. An error there is no error of a job: it is logged, once for each kind of call.

    kind: what the calls are about, for the log.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._failed: set[str] = set()

    def run(self, what: str, call: Callable[[], T]) -> T | None:
        """Returns what the call returns; None if it fails."""
        try:
            return call()
        except SparkBullError:
            # The timeout or the cancellation of a job, which interrupts the code that it runs.
            raise
        except Exception as error:
            if what not in self._failed:
                self._failed.add(what)
                log.warning("%s: %s failed (%s)", self._kind, what, described(error))
            return None
