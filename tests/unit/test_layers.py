"""The layers of the package: imports go down only, few modules may import redis or pyspark; the picture of them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tools.draw_rooms import PICTURE, picture

ROOT = Path(__file__).parents[2]
PACKAGE = "spark_bull"

# From the bottom up. A name is `spark`, or a module or package of another part. Names on one line may import
# one another.
LAYERS = (
    (
        "core",
        "core.errors",
        "core.late",
        "core.error_text",
        "core.well_formed",
        "core.clock",
        "core.threads",
        "core.version",
    ),
    ("core.model", "core.keys", "core.embedded", "core.tracing"),
    ("core.options",),
    ("core.payloads",),
    ("core.store",),
    ("core.dialects",),
    ("core.queue",),
    ("run", "run.claims", "run.job", "run.slot", "run.progress_line"),
    ("run.services",),
    ("run.worker",),
    ("run.testing",),
    ("spark",),
    ("ops", "ops.prometheus", "ops.web"),
    ("ops.cli",),
    ("__init__",),
)
LEVEL = {name: height for height, layer in enumerate(LAYERS) for name in layer}
#: Modules that import inside functions, so that each process of Spark, and each command, imports only what it needs.
LATE = (
    "spark_bull.spark.provider",
    "spark_bull.spark.collect.stream",
    "spark_bull.ops.cli.command",
    "spark_bull.ops.cli.demo",
    "spark_bull.ops.cli.programs",
    "spark_bull.ops.cli.serve",
    "spark_bull.ops.cli.show",
    "spark_bull.core.tracing.tracer",
)
#: Names that some supported versions of PySpark lack, or whose functions differ.
DIFFERS = (
    "pyspark.sql.pandas",
    "pyspark.sql.streaming.datasource",
    "pyspark.sql.datasource.DataSourceStreamArrowWriter",
    "pyspark.util.PythonEvalType",
    "py4j",
)
#: Attributes by which PySpark reaches the JVM. They are private: any version may change them.
PRIVATE = ("_active_spark_context", "_create_judf", "_gateway", "_jconf", "_jdf", "_jsc", "_jsparkSession", "_judf")
PRIVATE += ("_jvm", "_jwrite")
MAY_IMPORT = {
    "redis": ("core.store",),
    "pyspark": ("spark", "ops.cli"),
}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted((ROOT / PACKAGE).rglob("*.py"))}


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    """The modules by name, parsed."""
    return {module: ast.parse(path.read_text()) for module, path in MODULES.items()}


def layer_name(module: str) -> str:
    """The name of a module in LAYERS."""
    part, *rest = (module.partition(".")[2] or "__init__").split(".")
    return f"{part}.{rest[0]}" if rest and part != "spark" else part


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


def own_imports(tree: ast.AST, module: str) -> set[str]:
    return {name for name in imports_in(tree, module) if name.split(".")[0] == PACKAGE}


def test_imports_go_down_only(trees: dict[str, ast.Module]) -> None:
    without = [module for module in MODULES if layer_name(module) not in LEVEL]
    assert not without, "these are not in LAYERS: say there which layer they belong to"
    upward = {
        module: above
        for module, tree in trees.items()
        if (
            above := {name for name in own_imports(tree, module) if LEVEL[layer_name(name)] > LEVEL[layer_name(module)]}
        )
    }
    assert not upward, "these import from a layer above their own"


def test_only_listed_modules_import_redis_and_pyspark(trees: dict[str, ast.Module]) -> None:
    libraries = {module: {name.split(".")[0] for name in imports_in(tree, module)} for module, tree in trees.items()}
    importing = [
        f"{module} imports {library}"
        for library, layers in MAY_IMPORT.items()
        for module, imported in libraries.items()
        if library in imported and layer_name(module) not in layers
    ]
    assert not importing


def depends_on_versions(node: ast.AST) -> bool:
    """Whether this imports or reads a name that a version of PySpark may lack, or compares the number of a version."""
    if isinstance(node, ast.Attribute):
        return node.attr in PRIVATE
    if isinstance(node, ast.Constant):
        return node.value in PRIVATE
    if isinstance(node, ast.Import):
        return any(alias.name.startswith(DIFFERS) for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return any(f"{node.module}.{alias.name}".startswith(DIFFERS) for alias in node.names)
    return isinstance(node, ast.Compare) and any(
        word in ast.unparse(node) for word in ("__version__", "version_info", "_PYSPARK", "spark.version")
    )


def test_only_the_platform_depends_on_the_version_of_pyspark(trees: dict[str, ast.Module]) -> None:
    depending = {
        f"{module}:{node.lineno}: {ast.unparse(node)}"
        for module, tree in trees.items()
        for node in ast.walk(tree)
        if depends_on_versions(node)
    }
    platform = {one for one in depending if one.startswith("spark_bull.spark.platform.")}
    assert platform
    assert not depending - platform, "these belong to spark_bull.spark.platform"


def test_own_modules_are_imported_at_the_top(trees: dict[str, ast.Module]) -> None:
    assert set(LATE) <= set(MODULES)
    hidden = {
        f"{module}:{node.lineno}": names
        for module, tree in trees.items()
        if module not in LATE
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        and (names := own_imports(node, module))
    }
    assert not hidden, "these are imported inside functions"


def test_no_other_module_names_or_compares_dialects(trees: dict[str, ast.Module]) -> None:
    """Differences between dialects belong to the class Dialect. `bull` is also the prefix and the data source."""
    named = [
        f"{module}:{node.lineno}: {ast.unparse(node)}"
        for module, tree in trees.items()
        if layer_name(module) != "core.dialects" and module != "spark_bull.core.options.parts"
        for node in ast.walk(tree)
        if (isinstance(node, ast.Constant) and node.value in ("bull-1", "bullmq"))
        or (isinstance(node, ast.Compare) and any(getattr(part, "value", "") == "bull" for part in node.comparators))
    ]
    assert not named


def test_a_constant_is_defined_in_one_module(trees: dict[str, ast.Module]) -> None:
    """Constants with the same name may have different values; with the same value they must be one constant."""
    homes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for module, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                homes[node.target.id, ast.unparse(node.value)].append(module)
    twice = {name: modules for name, modules in homes.items() if len(modules) > 1 and name[0].isupper()}
    assert not twice, f"defined in several modules, import it from one: {twice}"


def room_of(module: str) -> str:
    """The folder of a module."""
    return MODULES[module].parent.relative_to(ROOT / PACKAGE).as_posix()


def is_nested(one: str, other: str) -> bool:
    """Whether one of two rooms is in the other: the files of a package may use its rooms, or be used by them."""
    return "." in (one, other) or f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def test_only_one_module_imports_thread(trees: dict[str, ast.Module]) -> None:
    """All threads are daemons with names of this package."""
    importers = {
        module
        for module, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and node.module == "threading"
        and "Thread" in [one.name for one in node.names]
    }
    assert importers == {f"{PACKAGE}.core.threads"}


def test_neither_modules_nor_rooms_import_each_other_in_a_circle(trees: dict[str, ast.Module]) -> None:
    """prepare() raises CycleError, which shows the circle."""
    modules = {module: own_imports(tree, module) - {module} for module, tree in trees.items()}
    TopologicalSorter(modules).prepare()
    rooms: dict[str, set[str]] = defaultdict(set)
    for module, imported in modules.items():
        here = room_of(module)
        rooms[here] |= {room for room in map(room_of, imported) if not is_nested(here, room)}
    TopologicalSorter(rooms).prepare()


def test_the_folders_of_unit_tests_are_those_of_the_package() -> None:
    here = Path(__file__).parent
    folders = {path.parent.relative_to(here).as_posix() for path in here.rglob("test_*.py")} - {"."}
    assert folders
    homeless = [folder for folder in sorted(folders) if not (ROOT / PACKAGE / folder / "__init__.py").exists()]
    assert not homeless, "move these to the folders of the modules they test"


def test_the_picture_in_the_docs_is_that_of_the_code() -> None:
    assert PICTURE.read_text() == picture(), "run `make docs`"
