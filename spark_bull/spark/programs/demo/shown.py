"""What the demo prints of its steps."""

from __future__ import annotations

import sys
from dataclasses import dataclass


def announce(what: str, code: str = "") -> None:
    """Prints the title of a step, and the code that it runs."""
    print(f"\n\033[1m{what}\033[0m" if sys.stdout.isatty() else f"\n{what}")
    for line in code.strip().splitlines():
        print(f"    {line.strip()}")
    sys.stdout.flush()


@dataclass(frozen=True)
class Measured:
    """What a verb did, in how many s, without the start of Spark."""

    verb: str
    jobs: int
    seconds: float
    what: str

    @property
    def rate(self) -> float:
        """Jobs per second."""
        return self.jobs / self.seconds

    def __str__(self) -> str:
        return f"{self.verb:<10}{self.jobs:>9,} jobs {self.seconds:>7.1f} s {self.rate:>10,.0f} jobs/s   {self.what}"
