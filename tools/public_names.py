"""Writes tests/unit/public_names.txt: each name that docs/reference/compatibility.md promises, as users see it.

python -m tools.public_names
"""

from __future__ import annotations

import inspect
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import spark_bull
from spark_bull.core.keys import SEGMENTS, QueueKeys, queue_registry
from spark_bull.core.options.parts import options_in
from spark_bull.core.options.table import SCOPES
from spark_bull.ops.cli.main import parser
from spark_bull.ops.prometheus.families import FAMILIES
from spark_bull.ops.web.api.description import described
from spark_bull.ops.web.server import create_app
from spark_bull.ops.web.settings import WebSettings
from spark_bull.run import testing
from spark_bull.spark.schemas import CLAIM_SCHEMA, SCHEMAS

STORED: Final = Path(__file__).parent.parent / "tests" / "unit" / "public_names.txt"
_PRIVATE: Final = ":spark:"


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
            yield f"class {name}({bases}){_signature(found) if '__init__' in vars(found) else ''}"
            for member, method in members(found):
                is_property = isinstance(method, property)
                shown = f" -> {method.fget.__annotations__.get('return')}" if is_property else _signature(method)
                yield f"{name}.{member}{shown}"


def _signature(found: Callable[..., Any]) -> str:
    return str(inspect.signature(found))


def options() -> Iterator[str]:
    """The options with their defaults, and the verbs that have them."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for scope in SCOPES:
        for option in options_in(scope).values():
            key = scope.spelled(option.name), option.default_text
            verbs.setdefault(key, []).append(scope.__name__.removesuffix("Options").lower())
    for (name, default), having in sorted(verbs.items()):
        yield f"{name} = {default or '–'}: {' '.join(having)}"


def columns() -> Iterator[str]:
    """The columns of each view, and of claimed jobs."""
    for view, schema in {**SCHEMAS, "claimed jobs": CLAIM_SCHEMA}.items():
        for field in schema:
            yield f"{view} {field.name} {field.dataType.simpleString()}"


def commands() -> Iterator[str]:
    """The commands with their arguments."""
    whole = parser()
    (by_name,) = (action for action in whole._actions if isinstance(action, _SubParsersAction))
    common = set(_arguments(whole))
    yield f"spark-bull {' '.join(sorted(common))}"
    for name, command in by_name.choices.items():
        yield " ".join([f"spark-bull {name}", *(one for one in _arguments(command) if one not in common)])


def _arguments(command: ArgumentParser) -> list[str]:
    return ["/".join(one.option_strings) or str(one.metavar or one.dest).upper() for one in command._actions]


def paths() -> Iterator[str]:
    """The operations of the REST API with their parameters, and the properties of its documents."""
    description = described(create_app(WebSettings()))
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            names = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
            yield f"{method.upper()} {path} {' '.join(names)}".rstrip()
    for name, schema in sorted(description["components"]["schemas"].items()):
        yield f"{name}: {' '.join(schema.get('properties', schema.get('enum', ())))}"


def metrics() -> Iterator[str]:
    """The metrics for Prometheus."""
    for family in FAMILIES:
        yield f"{family.name} {family.kind}"


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
    "REST": paths,
    "metrics": metrics,
    "private keys in Redis": private_keys,
}


def text() -> str:
    """All sections."""
    return "\n".join(f"# {title}\n" + "".join(f"{line}\n" for line in lines()) for title, lines in SECTIONS.items())


if __name__ == "__main__":
    STORED.write_text(text(), "utf-8")
