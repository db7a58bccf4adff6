"""Writes tests/unit/public_names.txt: each name that docs/reference/compatibility.md promises, as users see it.

python -m tools.public_names
"""

from __future__ import annotations

import inspect
import re
from argparse import SUPPRESS, ArgumentParser, _SubParsersAction
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from fastapi.routing import APIRoute

import spark_bull
from spark_bull.core.keys import SEGMENTS, QueueKeys, queue_registry
from spark_bull.core.options.parts import options_in
from spark_bull.core.options.table import SCOPES
from spark_bull.ops.cli.main import parser
from spark_bull.ops.cli.status import MEANINGS, status_of
from spark_bull.ops.prometheus import server
from spark_bull.ops.prometheus.families import FAMILIES
from spark_bull.ops.web.api.description import described, router
from spark_bull.ops.web.server import create_app, probes
from spark_bull.ops.web.settings import WebSettings
from spark_bull.run import testing
from spark_bull.spark.call.table_function import _ARGUMENTS, NAME
from spark_bull.spark.schemas import CLAIM_SCHEMA, SCHEMAS

_ROOT: Final = Path(__file__).parent.parent
STORED: Final = _ROOT / "tests" / "unit" / "public_names.txt"
_PRIVATE: Final = ":spark:"
#: In descriptions of members that are not for users.
_OF_WORKER: Final = re.compile(r"(Called|Read) by the worker|For the worker")


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class, without inherited ones of other packages."""
    others = [base for base in kind.__mro__ if not base.__module__.startswith("spark_bull")]
    for name, member in inspect.getmembers(kind):
        is_ours = not name.startswith("_") and not any(hasattr(base, name) for base in others)
        if is_ours and (callable(member) or isinstance(member, property)):
            yield name, member


def python_names() -> Iterator[str]:
    """Functions, classes with their bases, methods and properties."""
    for module in (spark_bull, testing):
        for name in module.__all__:
            if name == "__version__":
                continue
            found = getattr(module, name)
            if not inspect.isclass(found):
                yield f"{name}{_signature(found)}"
                continue
            bases = ", ".join(base.__name__ for base in found.__bases__ if base is not object)
            signature = _signature(found) if "__init__" in vars(found) else ""
            # Users have no QueueHandle: only the package creates an object of such a class.
            yield f"class {name}({bases}){'' if 'QueueHandle' in signature else signature}"
            for member, method in members(found):
                if _OF_WORKER.search(" ".join((method.__doc__ or "").split())):
                    continue
                is_property = isinstance(method, property)
                shown = f" -> {method.fget.__annotations__.get('return')}" if is_property else _signature(method)
                yield f"{name}.{member}{shown}"


def _signature(found: Callable[..., Any]) -> str:
    return str(inspect.signature(found))


def _shown(name: str, choices: Iterable[object] | None, default: object = None) -> str:
    """A name with the values that it can have, and its default."""
    among = f"{{{','.join(map(str, choices))}}}" if choices else ""
    has_default = default is not False and default not in (None, "", [], SUPPRESS)
    return f"{name}{among}" + (f"={default}" if has_default else "")


def options() -> Iterator[str]:
    """The options with their choices and defaults, and the verbs that have them."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for scope in SCOPES:
        for option in options_in(scope).values():
            choices = inspect.getclosurevars(option.parse).nonlocals.get("choices")
            key = _shown(scope.spelled(option.name), choices), option.default_text
            verbs.setdefault(key, []).append(scope.__name__.removesuffix("Options").lower())
    for (name, default), having in sorted(verbs.items()):
        yield f"{name} = {default or '–'}: {' '.join(having)}"


def columns() -> Iterator[str]:
    """The columns of each view, and of claimed jobs."""
    for view, schema in {**SCHEMAS, "claimed jobs": CLAIM_SCHEMA}.items():
        for field in schema:
            yield f"{view} {field.name} {field.dataType.simpleString()}"


def commands() -> Iterator[str]:
    """The commands with their arguments, and the choices and defaults of these."""
    whole = parser()
    (by_name,) = (action for action in whole._actions if isinstance(action, _SubParsersAction))
    common = set(_arguments(whole))
    yield f"spark-bull {' '.join(sorted(common))}"
    for name, command in by_name.choices.items():
        yield " ".join([f"spark-bull {name}", *(one for one in _arguments(command) if one not in common)])


def _arguments(command: ArgumentParser) -> list[str]:
    return [
        _shown("/".join(one.option_strings) or str(one.metavar or one.dest).upper(), one.choices, one.default)
        for one in command._actions
        if one.help != SUPPRESS and not isinstance(one, _SubParsersAction)
    ]


def statuses() -> Iterator[str]:
    """The exit statuses of the command, with the classes of errors that have them."""
    found = [getattr(spark_bull, name) for name in dir(spark_bull)]
    errors = [one for one in found if inspect.isclass(one) and issubclass(one, spark_bull.SparkBullError)]
    for status in MEANINGS:
        names = [one.__name__ for one in errors if status_of(one.__new__(one)) == status]
        yield f"{status} {' '.join(names)}".rstrip()


def variables() -> Iterator[str]:
    """The environment variables that the package names."""
    sources = [one.read_text("utf-8") for one in (_ROOT / "spark_bull").rglob("*.py")]
    yield from sorted({name for source in sources for name in re.findall(r"\bSPARK_BULL_[A-Z_]+", source)})


def sql() -> Iterator[str]:
    """The table function with its arguments."""
    yield f"{NAME}(table, queue, {', '.join(_ARGUMENTS)})"


def node() -> Iterator[str]:
    """What the module for Node exports, and the methods that it describes."""
    source = (_ROOT / "docs" / "node" / "spark-bull-payloads.js").read_text("utf-8")
    yield from re.findall(r"^module\.exports = .*", source, re.MULTILINE)
    yield from re.findall(r"^  //.*\n  (?:async )?(\w+\(.*\)) {", source, re.MULTILINE)


def paths() -> Iterator[str]:
    """The operations of the REST API with their parameters, and the properties of its documents; *: required."""
    undescribed = [one.path for one in (*probes.routes, *router.routes) if isinstance(one, APIRoute)]
    yield from (f"GET {path}" for path in undescribed)
    description = described(create_app(WebSettings()))
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            names = [_parameter(one) for one in operation.get("parameters", ()) if one["in"] != "path"]
            yield f"{method.upper()} {path} {' '.join(names)}".rstrip()
    for name, schema in sorted(description["components"]["schemas"].items()):
        required = schema.get("required", ())
        properties = [f"{one}*" if one in required else one for one in schema.get("properties", schema.get("enum", ()))]
        yield f"{name}: {' '.join(properties)}"


def _parameter(one: Mapping[str, Any]) -> str:
    name = f"{'header:' if one['in'] == 'header' else ''}{one['name']}{'*' if one.get('required') else ''}"
    return _shown(name, one["schema"].get("enum"), one["schema"].get("default"))


def metrics() -> Iterator[str]:
    """The paths of the server for Prometheus, and the metrics with their labels."""
    yield from (f"GET {path}" for path in (server.PATH, server.ALIVE))
    labels = labels_of_metrics()
    for family in FAMILIES:
        yield f"{family.name} {family.kind} {' '.join(labels[family.name])}".rstrip()


def labels_of_metrics() -> dict[str, list[str]]:
    """The labels of each metric by the table of docs/howto/monitor.md, which a test compares with samples."""
    page = (_ROOT / "docs" / "howto" / "monitor.md").read_text("utf-8")
    rows = re.findall(r"^\| (`(?:bullmq|spark_bull)_[^|]*`) \|([^|]*)\|", page, re.MULTILINE)
    return {metric: re.findall(r"\w+", labels) for named, labels in rows for metric in re.findall(r"\w+", named)}


def private_keys() -> Iterator[str]:
    """The keys in Redis that Node does not know."""
    own = QueueKeys("<queue>", "<prefix>")
    found = [queue_registry("<prefix>"), *(own[name] for name in SEGMENTS)]
    for name, member in inspect.getmembers(QueueKeys, inspect.isfunction):
        if name.startswith("_"):
            continue
        arguments = [f"<{parameter}>" for parameter in list(inspect.signature(member).parameters)[1:]]
        key = getattr(own, name)(*arguments)
        found += key.values() if isinstance(key, Mapping) else [key]
    return (key for key in sorted(found) if _PRIVATE in key or key == queue_registry("<prefix>"))


SECTIONS: Final[Mapping[str, Callable[[], Iterator[str]]]] = {
    "Python": python_names,
    "options": options,
    "columns": columns,
    "commands": commands,
    "exit statuses": statuses,
    "environment": variables,
    "SQL": sql,
    "Node": node,
    "REST": paths,
    "metrics": metrics,
    "private keys in Redis": private_keys,
}


def text() -> str:
    """All sections."""
    return "\n".join(f"# {title}\n" + "".join(f"{line}\n" for line in lines()) for title, lines in SECTIONS.items())


if __name__ == "__main__":
    STORED.write_text(text(), "utf-8")
