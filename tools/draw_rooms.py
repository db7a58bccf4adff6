"""Draws docs/develop/rooms.svg: the packages of `core`, the parts above it, their rooms, and which imports which.

A package stands above all that it imports. An arrow that follows from others is left out: where A imports B and B
imports C, no arrow leads from A to C.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = ROOT / "spark_bull"
PICTURE: Final = ROOT / "docs" / "develop" / "rooms.svg"
#: Sizes, px.
WIDTH, LINE, PADDING, GAP, LEVEL_GAP = 1080, 18, 12, 28, 46
CHARACTER: Final = 8.2
#: Rooms of a package on one line.
ROOMS_PER_LINE: Final = 5

Imports = Mapping[str, set[str]]


def package_of(module: str) -> str:
    """`core/queue` for `spark_bull.core.queue.jobs.read`, `core` for `spark_bull.core.errors`, else the part."""
    part, *rest = module.split(".")[1:]
    return f"core/{rest[0]}" if part == "core" and (PACKAGE / "core" / rest[0]).is_dir() else part


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_of_packages() -> Imports:
    """Which packages each package imports, without its own."""
    imports: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if module != "spark_bull.__init__":
            own = package_of(module)
            names = {name for name in imported(ast.parse(path.read_text())) if name.startswith("spark_bull.")}
            imports.setdefault(own, set()).update({package_of(name) for name in names} - {own})
    return imports


def rooms_of(package: str) -> list[str]:
    """The folders of a package, and for `core` the modules beside its packages."""
    folder = PACKAGE / package
    if package == "core":
        return sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    return sorted(path.parent.name for path in folder.glob("*/__init__.py"))


def without_detours(imports: Imports) -> dict[str, set[str]]:
    """The imports that do not follow from others."""

    def below(name: str) -> set[str]:
        return {deeper for direct in imports[name] for deeper in {direct, *below(direct)}}

    return {
        name: {direct for direct in names if not any(direct in below(other) for other in names - {direct})}
        for name, names in imports.items()
    }


def levels_of(imports: Imports) -> list[list[str]]:
    """The packages of each level, the lowest first: each imports only packages of lower levels."""
    heights: dict[str, int] = {}
    # Raises CycleError, which shows the circle, if packages import each other.
    for name in TopologicalSorter(imports).static_order():
        heights[name] = 1 + max((heights[other] for other in imports[name]), default=-1)
    return [sorted(name for name in imports if heights[name] == level) for level in range(1 + max(heights.values()))]


@dataclass(frozen=True)
class Box:
    """A drawn package. Sizes and places in px."""

    name: str
    lines: list[str]
    x: float
    y: float
    width: float
    height: float

    def svg(self) -> str:
        middle = self.x + self.width / 2
        texts = [
            f'<text x="{middle:.0f}" y="{self.y + PADDING + LINE * (i + 0.7):.0f}" class="{kind}">{escape(text)}</text>'
            for i, (kind, text) in enumerate([("name", self.name), *(("rooms", line) for line in self.lines)])
        ]
        frame = f'<rect x="{self.x:.0f}" y="{self.y:.0f}" width="{self.width:.0f}" height="{self.height:.0f}" rx="6"/>'
        return "\n".join([frame, *texts])


def lines_of(package: str) -> list[str]:
    rooms = rooms_of(package)
    return [" · ".join(rooms[i : i + ROOMS_PER_LINE]) for i in range(0, len(rooms), ROOMS_PER_LINE)]


def boxes_of(levels: list[list[str]]) -> dict[str, Box]:
    """Places the packages of each level in a row, the highest level on top."""
    boxes: dict[str, Box] = {}
    y = float(GAP)
    for names in reversed(levels):
        texts = {name: lines_of(name) for name in names}
        widths = {name: 2 * PADDING + CHARACTER * max(map(len, [name, *texts[name]])) for name in names}
        tallest = 2 * PADDING + LINE * (1 + max(len(lines) for lines in texts.values()))
        x = (WIDTH - sum(widths.values()) - GAP * (len(names) - 1)) / 2
        for name in names:
            height = 2 * PADDING + LINE * (1 + len(texts[name]))
            boxes[name] = Box(name, texts[name], x, y + (tallest - height) / 2, widths[name], height)
            x += widths[name] + GAP
        y += tallest + LEVEL_GAP
    return boxes


def arrow(upper: Box, lower: Box) -> str:
    start, end = (upper.x + upper.width / 2, upper.y + upper.height), (lower.x + lower.width / 2, lower.y)
    bend = (start[1] + end[1]) / 2
    return (
        f'<path d="M {start[0]:.0f} {start[1]:.0f} C {start[0]:.0f} {bend:.0f} {end[0]:.0f} {bend:.0f} '
        f'{end[0]:.0f} {end[1]:.0f}" marker-end="url(#head)"/>'
    )


STYLE: Final = """<style>
text { font: 13px sans-serif; fill: #333; text-anchor: middle }
.name { font-weight: bold; font-size: 14px }
rect { fill: #fff; stroke: #5c6bc0 }
path { fill: none; stroke: #90a4ae; stroke-width: 1.5 }
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M 0 0 L 8 4 L 0 8" /></marker></defs>"""


def picture() -> str:
    """The whole picture, as SVG."""
    imports = imports_of_packages()
    boxes = boxes_of(levels_of(imports))
    height = max(box.y + box.height for box in boxes.values()) + GAP
    arrows = [
        arrow(boxes[upper], boxes[lower])
        for upper, lowers in sorted(without_detours(imports).items())
        for lower in sorted(lowers)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">',
            "<title>The packages of spark_bull: each imports only packages below it</title>",
            STYLE,
            f'<rect width="{WIDTH}" height="{height:.0f}" style="fill: #fafafa; stroke: none"/>',
            *arrows,
            *(box.svg() for box in boxes.values()),
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(picture())
