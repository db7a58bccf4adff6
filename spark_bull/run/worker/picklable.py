"""Whether the functions of a worker can be sent to other processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from spark_bull.core.errors import OptionError
from spark_bull.run.slot.slot_plan import SlotPlan

#: What to do with a function that even cloudpickle cannot pickle.
OPEN_INSIDE: Final = "open connections, locks and files inside the function"


def check_picklable(dumps: Callable[[Any], bytes], what_to_do: str, **arguments: Any) -> None:
    """Raises OptionError if a function among these arguments of a worker cannot be pickled by `dumps`."""
    for name, argument in arguments.items():
        try:
            dumps(argument)
        except Exception as error:
            raise OptionError(
                f"expected `{name}` to be picklable, as it is sent to other processes, "
                f"got {type(error).__name__}: {error}; {what_to_do}"
            ) from error


def check_picklable_plan(dumps: Callable[[Any], bytes], what_to_do: str, plan: SlotPlan) -> None:
    """The same for all functions of a plan."""
    check_picklable(
        dumps,
        what_to_do,
        processor=plan.runner,
        setup=plan.setup,
        tracer=plan.tracer,
        meter=plan.meter,
        backoff_strategy=plan.policy.strategy,
    )
