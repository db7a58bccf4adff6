"""All commands, in the order of the help."""

from __future__ import annotations

from typing import Final

from spark_bull.cli.add import ADD
from spark_bull.cli.completion import COMPLETION
from spark_bull.cli.doctor.command import DOCTOR
from spark_bull.cli.limits import LIMITS
from spark_bull.cli.manage import MANAGE
from spark_bull.cli.metrics import METRICS
from spark_bull.cli.programs import PROGRAMS
from spark_bull.cli.promote import PROMOTE
from spark_bull.cli.schedule import SCHEDULE
from spark_bull.cli.serve import SERVE
from spark_bull.cli.show import SHOW
from spark_bull.cli.tail import TAIL

COMMANDS: Final = (
    *SHOW,
    TAIL,
    ADD,
    *SCHEDULE,
    *MANAGE,
    *LIMITS,
    PROMOTE,
    METRICS,
    DOCTOR,
    SERVE,
    *PROGRAMS,
    COMPLETION,
)
