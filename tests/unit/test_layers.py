"""The picture of the house, held: imports go down only, and few may know Redis or Spark."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "spark_bull"

# From the ground up. A name is a module or a sub-package of spark_bull; what shares a line may import one another.
LAYERS = (
    ("errors", "model", "columns", "job_json", "outcomes", "clock", "guard", "version"),
    ("options", "keys", "local"),
    ("store",),
    ("dialects",),
    ("queue",),
    ("worker",),
    ("services",),
    ("spark",),
    ("cli",),
    ("__init__",),
)
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}
#: Where processes that Spark starts for one step of a query part, and commands that need Spark from those that do not:
#: each imports what it needs.
LATE = ("spark_bull.spark.provider", "spark_bull.spark.collect.stream", "spark_bull.cli.programs")
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


def part_of_house(module: str) -> str:
    """The name by which a module stands in LAYERS."""
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
    assert part_of_house(module) in HEIGHT, f"{module} is not in LAYERS: say there which layer it belongs to"


@every_module
def test_imports_go_down_only(module: str) -> None:
    height = HEIGHT[part_of_house(module)]
    # What has no place yet counts as above everything.
    upward = {name for name in own_imports(module) if HEIGHT.get(part_of_house(name), len(LAYERS)) > height}
    assert not upward, f"{module} imports from a layer above its own: {sorted(upward)}"


@every_module
@pytest.mark.parametrize("library", MAY_IMPORT)
def test_only_listed_modules_import_redis_and_pyspark(library: str, module: str) -> None:
    if part_of_house(module) not in MAY_IMPORT[library]:
        assert library not in {name.split(".")[0] for name in imports_in(TREES[module], module)}


@every_module
def test_own_modules_are_imported_at_the_top(module: str) -> None:
    for node in ast.walk(TREES[module]):
        if module not in LATE and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            hidden = {name for name in imports_in(node, module) if name.split(".")[0] == PACKAGE}
            assert not hidden, f"{module}:{node.lineno} imports {sorted(hidden)} inside a function"


@every_module
def test_names_of_dialects_appear_only_in_dialects_and_options(module: str) -> None:
    """Whatever differs between dialects is asked of the dialect; `bull` is also the prefix and the data source."""
    if part_of_house(module) in ("dialects", "options"):
        return
    texts = {node.value for node in ast.walk(TREES[module]) if isinstance(node, ast.Constant)}
    assert not texts & {"bull-1", "bullmq"}


@every_module
def test_no_dialect_is_compared_by_its_name(module: str) -> None:
    if part_of_house(module) in ("dialects", "options"):
        return
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Compare):
            constants = {part.value for part in node.comparators if isinstance(part, ast.Constant)}
            assert "bull" not in constants, f"{module}:{node.lineno}: {ast.unparse(node)}"


def test_a_constant_is_defined_in_one_module() -> None:
    """Two that are called alike may differ on purpose; with the same value they are one."""
    homes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for module, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                homes[node.target.id, ast.unparse(node.value)].append(module)
    twice = {name: modules for name, modules in homes.items() if len(modules) > 1 and name[0].isupper()}
    assert not twice, f"defined in several modules, import it from one: {twice}"


def test_there_are_no_import_cycles() -> None:
    # prepare() raises CycleError, which shows the circle.
    TopologicalSorter({module: own_imports(module) - {module} for module in MODULES}).prepare()
