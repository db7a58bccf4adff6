"""Runs a worker as a program: its functions by their names, and its end."""

from __future__ import annotations

import importlib
import os
import re
import symtable
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from spark_bull.core.errors import OptionError
from spark_bull.core.model.guards import Guard
from spark_bull.core.options.parse import REDIS_PREFIX, parse_arguments
from spark_bull.core.options.table import WorkOptions
from spark_bull.run.job.interrupts import Terminated, interrupted_once
from spark_bull.run.slot.status import WorkerStatus
from spark_bull.run.worker.base_worker import INTERRUPT_WITHIN_S, STOP_WITHIN_S, BaseWorker
from spark_bull.run.worker.slots_plan import opened, worked_queues
from spark_bull.run.worker.worker_options import check_combinations, check_guards, checked_env

#: Environment variables of a program that spark-submit has started, or for which it gets arguments.
_SUBMITTED: Final = {"PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"}


#: Ways to define names that only show when the module runs.
_DYNAMIC: Final = re.compile(
    r"\bimport\s*\*|\b(globals|locals|vars|exec|setattr)\s*\(|(\bsys\.|\bimport\s+)modules\b|\b__(dict|getattr)__\b"
)


def may_define(spec: ModuleSpec, name: str) -> bool:
    """Whether a module may define a name; True also if its source does not tell. Raises SyntaxError."""
    get_source: Any = getattr(spec.loader, "get_source", None)
    try:
        source = get_source(spec.name) if get_source else None
    except ImportError:
        source = None
    if source is None or _DYNAMIC.search(source):
        return True
    return name in _defined(symtable.symtable(source, spec.origin or spec.name, "exec"))


def _defined(table: symtable.SymbolTable) -> Iterator[str]:
    """The names that a module, and functions with a statement `global`, bind."""
    for symbol in table.get_symbols():
        is_of_module = table.get_type() == "module" or symbol.is_declared_global()
        if is_of_module and (symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _defined(inner)


@dataclass(frozen=True)
class Functions:
    """What the worker calls, as MODULE:NAME."""

    processor: str
    setup: str | None = None

    @property
    def given(self) -> dict[str, str]:
        """Their names by arguments."""
        return {"--processor": self.processor} | ({} if self.setup is None else {"--setup": self.setup})

    def imported(self) -> dict[str, Any]:
        """Imports them, also from the current folder; returns them by the arguments of a worker. Raises OptionError."""
        return {name.removeprefix("--"): _imported(name, given) for name, given in self.given.items()}


def check(
    queues: Sequence[str],
    functions: Functions,
    options: Mapping[str, Any],
    *,
    weights: Mapping[str, int],
    env: Mapping[str, str],
    guards: Sequence[Guard],
    adds_files: bool = False,
) -> WorkOptions:
    """Raises what can be raised before Spark starts: OptionError and DialectError for options, ConnectionLost.

    adds_files: whether Spark adds files to the path of modules when it starts, such as --py-files. Returns the parsed
    options.
    """
    for argument, name in functions.given.items():
        _check_exists(argument, name, adds_files or bool(_SUBMITTED & os.environ.keys()))
    arguments = arguments_of({name: value for name, value in options.items() if name != "payload_schema"})
    parsed = parse_arguments(arguments, WorkOptions)
    check_combinations(parsed)
    check_guards(parsed, guards)
    checked_env(env or None)
    for queue in opened(parsed, worked_queues(None, queues, weights)):
        queue.handle.dialect.check_options(parsed)
    return parsed


def _check_exists(argument: str, name: str, may_come: bool) -> None:
    """Raises OptionError if a name is not MODULE:NAME, or does not exist. may_come: its module may come later."""
    module, attribute = _parts(argument, name)
    if may_come:
        return
    try:
        spec = find_spec(module)
        has_attribute = spec is not None and may_define(spec, attribute)
    except SyntaxError as error:
        raise _not_importable(argument, name, error) from None
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise _not_importable(argument, name, f"No module named {module!r}")
    if not has_attribute:
        raise _not_importable(argument, name, f"module {module!r} has no attribute {attribute!r}")


def _not_importable(argument: str, name: str, why: object) -> OptionError:
    return OptionError(f"expected {argument} to be importable, got {name!r}: {why}")


def _parts(argument: str, name: str) -> tuple[str, str]:
    """Splits MODULE:NAME, and adds the current folder to the path of modules. Raises OptionError."""
    module, separator, attribute = name.partition(":")
    if not separator:
        raise OptionError(f"expected {argument} MODULE:NAME, got: {name!r}")
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    return module, attribute


def _imported(argument: str, name: str) -> Any:
    module, attribute = _parts(argument, name)
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise _not_importable(argument, name, error) from error


def run(worker: BaseWorker, *, stop_timeout_s: float | None = None, until_idle_s: float | None = None) -> WorkerStatus:
    """Runs a worker until the program is stopped, or idle for `until_idle_s`; returns its status.

    stop_timeout_s: maximum time for jobs to finish then, s; None: STOP_WITHIN_S, after Ctrl-C INTERRUPT_WITHIN_S.
    """
    default_s = STOP_WITHIN_S
    try:
        with interrupted_once():
            worker.start()
            if until_idle_s is None:
                worker.await_termination()
            else:
                worker.await_idle(until_idle_s)
    except Terminated:
        # This and Ctrl-C are the regular ways to stop it.
        pass
    except KeyboardInterrupt:
        default_s = INTERRUPT_WITHIN_S
    finally:
        worker.stop(default_s if stop_timeout_s is None else stop_timeout_s)
    return worker.status()


def arguments_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Converts options to arguments of a worker; options `redis.…` become its argument `redis`."""
    of_redis = {name: value for name, value in options.items() if name.startswith(REDIS_PREFIX)}
    others = {name: value for name, value in options.items() if name not in of_redis}
    return {**others, "redis": {name.removeprefix(REDIS_PREFIX): value for name, value in of_redis.items()}}
