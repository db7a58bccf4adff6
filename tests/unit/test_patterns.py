"""No regular expression of the package takes exponential time, whatever the text."""

from __future__ import annotations

import ast
import random
import re
import signal
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[2]
USES = ("compile", "findall", "finditer", "fullmatch", "match", "search", "split", "sub")
#: An exponential pattern needs more than a year for this number of repeats, any other one less than a millisecond.
REPEATS = 60
#: CPU time for all texts of a pattern, s: thousands of times what any pattern takes that is not exponential.
CPU_S = 30


class _Exponential(Exception):
    pass


def _give_up(signum: int, frame: FrameType | None) -> None:
    raise _Exponential


class _Names(ast.NodeTransformer):
    """Replaces the parts of an f-string by a name, as only a call of its function knows them."""

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.Constant:
        return ast.Constant("name")


def _evaluated(node: ast.expr, names: dict[str, Any]) -> Any:
    for expression in (node, _Names().visit(node)):
        try:
            code = compile(ast.fix_missing_locations(ast.Expression(expression)), "", "eval")
            return eval(code, names)
        except NameError:
            continue
    return None


def _patterns(source: str, names: dict[str, Any]) -> Iterator[re.Pattern[Any]]:
    """The patterns in a text of Python, which uses these names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in [f"re.{use}" for use in USES]:
            given = [*node.args[1:], *(keyword.value for keyword in node.keywords if keyword.arg == "flags")]
            flags = [_evaluated(one, names) for one in given if ast.unparse(one).startswith("re.")]
            pattern = _evaluated(node.args[0], names)
            if pattern is not None:
                yield re.compile(pattern, flags[0] if flags else 0)


def _texts(pattern: str) -> Iterator[str]:
    """Repeats of what is in the pattern, alone or in pairs, after and before something else."""
    words = sorted({*re.findall(r"\w+", pattern), *(char for char in pattern if char != "\n"), *' a1A-/*_"'})
    literal = "".join(found[1] or found[0] for found in re.finditer(r"\\(\W)|[^][\\(){}*+?|.^$]", pattern))
    parts = {literal[start : start + length] for length in (2, 3, 4, 6) for start in range(len(literal))}
    chosen = random.Random(0)
    pairs = ["".join(chosen.choices(words, k=2)) for _ in range(100)]
    for repeated in [*words, *sorted(parts), *pairs]:
        for before in ("", chosen.choice(words)):
            yield before + repeated * REPEATS + chosen.choice(("!", "\n", chosen.choice(words)))


def _is_exponential(pattern: re.Pattern[Any]) -> bool:
    before = signal.signal(signal.SIGVTALRM, _give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
    try:
        is_bytes = isinstance(pattern.pattern, bytes)
        for text in _texts(pattern.pattern.decode() if is_bytes else pattern.pattern):
            given = text.encode() if is_bytes else text
            pattern.match(given), pattern.fullmatch(given), pattern.search(given)
    except _Exponential:
        return True
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return False


def test_no_pattern_takes_exponential_time() -> None:
    found = 0
    for path in sorted((ROOT / "spark_bull").rglob("*.py")):
        source = path.read_text()
        if "re." not in source:
            continue
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for pattern in _patterns(source, vars(import_module(name))):
            found += 1
            assert not _is_exponential(pattern), f"{path}: {pattern.pattern!r}"
    assert found > 50
