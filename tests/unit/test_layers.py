"""The layers of the package: imports go down only, and few modules may import redis or pyspark."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "spark_bull"

# From the bottom up. A name is a module or a sub-package of spark_bull; names on one line may import one another.
LAYERS = (
    ("errors", "error_text", "model", "columns", "job_json", "outcomes", "clock", "time_text", "guard", "version"),
    ("group_limits", "limiter"),
    ("option_values", "option_table", "options", "urls", "keys", "local", "otel", "tracer"),
    ("store",),
    ("dialects",),
    ("queue",),
    ("worker",),
    ("services", "prometheus"),
    ("spark",),
    ("web",),
    ("cli",),
    ("__init__",),
)
LEVEL = {name: height for height, layer in enumerate(LAYERS) for name in layer}
#: Modules that import inside functions, so that each process of Spark, and each command, imports only what it needs.
LATE = (
    "spark_bull.spark.provider",
    "spark_bull.spark.collect.stream",
    "spark_bull.cli.programs",
    "spark_bull.cli.serve",
    "spark_bull.tracer",
)
MAY_IMPORT = {
    "redis": ("store",),
    "pyspark": ("spark", "__init__", "cli"),
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted((ROOT / PACKAGE).rglob("*.py"))}
TREES = {module: ast.parse(path.read_text()) for module, path in MODULES.items()}

every_module = pytest.mark.parametrize("module", MODULES)


def layer_name(module: str) -> str:
    """The name of a module in LAYERS."""
    return (module.partition(".")[2] or "__init__").split(".")[0]


def imports_in(tree: ast.AST, module: str) -> Iterator[str]:
    """Full names of the imported modules; `from package import module` counts as that module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: expected an absolute import, got a relative one"
            source = node.module or ""
            for alias in node.names:
                full_name = f"{source}.{alias.name}"
                yield full_name if full_name in MODULES else source


def own_imports(module: str) -> set[str]:
    return {name for name in imports_in(TREES[module], module) if name.split(".")[0] == PACKAGE}


@every_module
def test_every_module_belongs_to_a_layer(module: str) -> None:
    assert layer_name(module) in LEVEL, f"{module} is not in LAYERS: say there which layer it belongs to"


@every_module
def test_imports_go_down_only(module: str) -> None:
    height = LEVEL[layer_name(module)]
    # A module that is not in LAYERS counts as the highest layer.
    upward = {name for name in own_imports(module) if LEVEL.get(layer_name(name), len(LAYERS)) > height}
    assert not upward, f"{module} imports from a layer above its own: {sorted(upward)}"


@every_module
@pytest.mark.parametrize("library", MAY_IMPORT)
def test_only_listed_modules_import_redis_and_pyspark(library: str, module: str) -> None:
    if layer_name(module) not in MAY_IMPORT[library]:
        assert library not in {name.split(".")[0] for name in imports_in(TREES[module], module)}


@every_module
def test_own_modules_are_imported_at_the_top(module: str) -> None:
    for node in ast.walk(TREES[module]):
        if module not in LATE and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            hidden = {name for name in imports_in(node, module) if name.split(".")[0] == PACKAGE}
            assert not hidden, f"{module}:{node.lineno} imports {sorted(hidden)} inside a function"


@every_module
def test_names_of_dialects_appear_only_in_dialects_and_the_table_of_options(module: str) -> None:
    """Differences between dialects belong to the class Dialect. `bull` is also the prefix and the data source."""
    if layer_name(module) in ("dialects", "option_table"):
        return
    texts = {node.value for node in ast.walk(TREES[module]) if isinstance(node, ast.Constant)}
    assert not texts & {"bull-1", "bullmq"}


@every_module
def test_no_dialect_is_compared_by_its_name(module: str) -> None:
    if layer_name(module) in ("dialects", "option_table"):
        return
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Compare):
            constants = {part.value for part in node.comparators if isinstance(part, ast.Constant)}
            assert "bull" not in constants, f"{module}:{node.lineno}: {ast.unparse(node)}"


def test_a_constant_is_defined_in_one_module() -> None:
    """Constants with the same name may have different values; with the same value they must be one constant."""
    homes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for module, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                homes[node.target.id, ast.unparse(node.value)].append(module)
    twice = {name: modules for name, modules in homes.items() if len(modules) > 1 and name[0].isupper()}
    assert not twice, f"defined in several modules, import it from one: {twice}"


def test_there_are_no_import_cycles() -> None:
    # prepare() raises CycleError, which shows the cycle.
    TopologicalSorter({module: own_imports(module) - {module} for module in MODULES}).prepare()
