"""The public names: what users need is exported, typed, documented parameter by parameter, and imported late."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import griffe
import pytest

import spark_bull
from spark_bull.core import errors
from spark_bull.core.options.arguments import JobProperties, QueueArguments, ServiceArguments, WorkerArguments
from spark_bull.core.options.parts import Options, options_in
from spark_bull.core.options.table import QueueOptions, ServiceOptions, WorkOptions
from spark_bull.ops.cli.commands import MODULES, commands_of
from tools.public_names import STORED, members, text

PUBLIC = {name: getattr(spark_bull, name) for name in spark_bull.__all__ if name != "__version__"}


#: All public callables by their full names.
CALLABLES: dict[str, Callable[..., Any]] = {
    **{name: found for name, found in PUBLIC.items() if not inspect.isclass(found) or "__init__" in vars(found)},
    **{
        f"{name}.{member}": method
        for name, found in PUBLIC.items()
        if inspect.isclass(found)
        for member, method in members(found)
        if not isinstance(method, property)
    },
}
PROPERTIES = {
    f"{name}.{member}": found
    for name, kind in PUBLIC.items()
    if inspect.isclass(kind)
    for member, found in members(kind)
    if isinstance(found, property)
}


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return [parameter for name, parameter in inspect.signature(function).parameters.items() if name != "self"]


def documented(function: Callable[..., Any]) -> list[str]:
    """The names in the list `Parameters:` of a docstring; a data class extends the list of its base."""
    bases = function.__bases__ if inspect.isclass(function) else ()
    inherited = [name for base in bases if is_dataclass(base) for name in documented(base)]
    _, _, after = (inspect.getdoc(function) or "").partition("\nParameters:\n")
    return inherited + re.findall(r"^  (\w+): \S", after.partition("\n\n")[0], re.MULTILINE)


def test_a_docstring_lists_exactly_the_parameters_and_properties_have_one_too() -> None:
    assert [name for name, found in (CALLABLES | PROPERTIES).items() if not inspect.getdoc(found)] == []
    listed = {name: documented(found) for name, found in CALLABLES.items()}
    assert listed == {name: [one.name for one in parameters_of(found)] for name, found in CALLABLES.items()}


def test_every_public_parameter_is_named_and_typed() -> None:
    for name, found in CALLABLES.items():
        for parameter in parameters_of(found):
            assert parameter.annotation is not inspect.Parameter.empty, f"{parameter.name} of {name} has no type"
            assert parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL), (
                f"{parameter} of {name} says no names"
            )


def test_a_parameter_has_its_unit_in_its_name() -> None:
    """Parameters that Bull has, too, keep their names."""
    named_by_bull = {"delay", "timestamp", "until"}
    without_unit = re.compile("(timeout|grace|interval|duration|seconds|minutes?|delay|after)$")
    names = [(name, one.name) for name, found in CALLABLES.items() for one in parameters_of(found)]
    wrong = [
        f"{one} of {name}: give it a unit, such as {one}_ms"
        for name, one in names
        if one not in named_by_bull and without_unit.search(one.replace("metrics_minutes", ""))
    ]
    assert wrong == []


#: Arguments of a Worker that are no options.
WORKER_ONLY = {"spark", "queue", "queues", "weights", "processor", "payload_schema", "backoff_strategy", "setup", "env"}
WORKER_ONLY |= {"tracer", "meter", "guards", "redis"}


@pytest.mark.parametrize(
    ("kind", "scope", "others"),
    [
        (spark_bull.BullQueue, QueueOptions, {"queue", "tracer", "meter", "redis"}),
        (spark_bull.Promoter, ServiceOptions, {"queues", "redis", "rescue", "ageing", "guards"}),
        (spark_bull.Rescuer, ServiceOptions, {"queues", "redis"}),
        (spark_bull.Worker, WorkOptions, WORKER_ONLY),
    ],
)
def test_arguments_match_the_table_of_options(kind: type, scope: type[Options], others: set[str]) -> None:
    arguments = {parameter.name for parameter in parameters_of(kind)}
    assert arguments - others == set(options_in(scope))


@pytest.mark.parametrize(
    ("called", "arguments"),
    [
        (spark_bull.BullQueue.__init__, QueueArguments),
        (spark_bull.BullQueue.add, JobProperties),
        (spark_bull.Promoter.__init__, ServiceArguments),
        (spark_bull.Rescuer.__init__, ServiceArguments),
        (spark_bull.Worker.__init__, WorkerArguments),
    ],
)
def test_a_signature_lists_the_type_that_mypy_and_editors_see(called: Callable[..., Any], arguments: type) -> None:
    (seen,) = {text for text in called.__annotations__.values() if str(text).startswith("Unpack[")}
    assert seen == f"Unpack[{arguments.__name__}]"
    listed = {parameter.name: parameter.annotation for parameter in parameters_of(called)}
    assert listed.items() >= {name: found.__forward_arg__ for name, found in arguments.__annotations__.items()}.items()


def test_a_job_that_is_added_has_the_properties_of_a_new_job() -> None:
    types = {field.name: field.type for field in fields(spark_bull.NewJob)}
    properties = {name: found.__forward_arg__ for name, found in JobProperties.__annotations__.items()}
    assert properties == {name: found for name, found in types.items() if name != "data"}


def test_the_reference_lists_the_options_as_help_does() -> None:
    extensions = griffe.load_extensions(Path(__file__).parents[2] / "tools" / "listed_arguments.py")
    shown = griffe.load("spark_bull.run.services.promoter", extensions=extensions)["Rescuer"]
    assert shown.docstring.value == inspect.getdoc(spark_bull.Rescuer)
    assert [parameter.name for parameter in shown.parameters] == ["self", *map(str, documented(spark_bull.Rescuer))]


def test_a_misspelt_property_is_refused_with_the_right_spelling() -> None:
    queue = spark_bull.BullQueue.__new__(spark_bull.BullQueue)
    for given in ("jobId", "removeOnComplete", "run_At"):
        with pytest.raises(spark_bull.OptionError, match=r"unknown property .* \(did you mean `[a-z_]+`\?\)"):
            queue.add({}, **{given: 1})


def test_the_names_that_are_promised_are_those_that_are_stored() -> None:
    """docs/reference/compatibility.md says what may change, and with which version."""
    assert STORED.read_text("utf-8") == text(), "run: python -m tools.public_names"


def test_every_error_is_exported() -> None:
    raised = {
        name
        for name, found in vars(errors).items()
        if inspect.isclass(found) and issubclass(found, errors.SparkBullError)
    }
    assert raised <= set(spark_bull.__all__)
    assert spark_bull.__all__ == sorted(spark_bull.__all__) == dir(spark_bull)
    assert not hasattr(spark_bull, "BullQue")


ROOT = Path(__file__).parents[2]
#: The module that Spark runs for the source of a stream.
STREAM = "pyspark.sql.streaming.python_streaming_source_runner"
#: Modules that take long to import.
COSTLY = {"pandas", "pyarrow.compute", "pyarrow.json", "pyspark.pandas", "pyspark.ml", "redis", "msgpack", "asyncio"}


def imported(step: str, ours: str) -> set[str]:
    """The modules imported in addition to the modules of the first one."""
    program = f"import sys, {step}; theirs = set(sys.modules); import {ours}; print(*(set(sys.modules) - theirs))"
    command = [sys.executable, "-c", program]
    return set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())


def test_the_source_of_claimed_jobs_imports_redis_and_nothing_for_batches() -> None:
    """redis-py always imports its asyncio modules."""
    modules = imported(STREAM, "spark_bull.spark.provider, spark_bull.spark.work.claim_stream")
    assert "redis.client" in modules
    assert modules & COSTLY == {"redis", "msgpack", "asyncio"}
    assert not {name for name in modules if name.startswith(("pyspark.", "numpy."))}


def test_the_public_names_are_those_that_type_checkers_see() -> None:
    stub = ast.parse((ROOT / "spark_bull" / "__init__.pyi").read_text("utf-8"))
    typed = {
        imported.asname: getattr(import_module(str(statement.module)), imported.name)
        for statement in stub.body
        if isinstance(statement, ast.ImportFrom)
        for imported in statement.names
    }
    star: dict[str, object] = {}
    exec("from spark_bull import *", star)
    del star["__builtins__"]
    assert star == typed | {"__version__": spark_bull.__version__}


def test_the_package_imports_no_public_name_and_neither_errors_nor_queues_load_pyspark() -> None:
    modules = imported("re, pkgutil", "spark_bull")
    ours = {name for name in modules if name.startswith("spark_bull.")}
    assert ours == {"spark_bull.core", "spark_bull.core.version"}
    assert not {"pyspark", "redis", "msgpack"} & imported("re", "spark_bull; spark_bull.QueueBusy")
    assert "pyspark" not in imported("re", "spark_bull; spark_bull.BullQueue, spark_bull.Promoter")


def test_each_command_is_in_the_list_of_its_module() -> None:
    found = {command.name: module for module in {*MODULES.values()} for command in commands_of(module)}
    assert found == MODULES


def test_opentelemetry_is_imported_only_for_a_tracer() -> None:
    """redis-py imports it, too, where it is installed."""
    modules = imported("redis", "spark_bull.core.queue.bull_queue, spark_bull.run.slot.slot")
    assert "spark_bull.core.tracing.tracer" in modules
    assert "spark_bull.core.tracing.otel" not in modules
    assert not {name for name in modules if name.split(".")[0] == "opentelemetry"}
