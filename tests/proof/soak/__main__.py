"""Runs everything at once while something is killed every 20 s, and prints the books and the memory: `make soak`.

    python -m tests.proof.soak --minutes 30 --seed 0

The exit status is 1 if the books do not balance, or if memory grows. The same seed draws the same faults in the same
order, though the machine decides at which call of a process they come.
"""

from __future__ import annotations

import argparse
import signal
import sys

from tests.proof.soak.report import broken, lines
from tests.proof.soak.run import soak

MINUTES = 30.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    # So that all processes are ended, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    report = soak(given.minutes, given.seed, lambda text: print(text, file=sys.stderr, flush=True))
    print(f"python -m tests.proof.soak --minutes {given.minutes:g} --seed {given.seed}\n")
    print("\n".join(lines(report)))
    for line in broken(report):
        print(f"broken: {line}")
    return 1 if broken(report) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
