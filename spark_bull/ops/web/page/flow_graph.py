"""The graph of a flow: a place for each job, from left to right, and the lines from parents to children."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from spark_bull.core.model.jobs import FlowNode

#: Sizes, pixels: of the box of a job, and of the space between two.
WIDTH: Final = 190
HEIGHT: Final = 46
_GAP_X: Final = 56
_GAP_Y: Final = 12
_MARGIN: Final = 4
#: Characters of the texts in a box; what is still too wide is not drawn.
_MOST_TITLE: Final = 17
_MOST_SUBTITLE: Final = 28

#: The states of jobs for what their parents know of them.
_STATES: Final = {"processed": "completed", "failed": "failed", "ignored": "failed", "unprocessed": "wait"}


@dataclass(frozen=True)
class Box:
    """A job in the graph. state: that of the job, or what its parent knows of it; left: children not shown."""

    queue: str
    id: str
    title: str
    subtitle: str
    state: str
    x: float
    y: float
    is_current: bool
    left: int


@dataclass(frozen=True)
class Graph:
    """The boxes, each before its children, and the lines as paths of SVG. Sizes are pixels."""

    boxes: list[Box]
    lines: list[str]
    width: float
    height: float


def graph_of(root: FlowNode, current: tuple[str, str], is_shown: Callable[[str], bool]) -> Graph:
    """Lays out a flow. current: queue and id of the job of the page; is_shown: whether a queue's jobs may be shown."""
    boxes: list[Box] = []
    lines: list[str] = []
    rows = 0

    def place(node: FlowNode) -> float:
        """Places the jobs below a job, then the job in their middle; returns its y."""
        nonlocal rows
        at = len(boxes)
        x = _MARGIN + node.depth * (WIDTH + _GAP_X)
        below = [place(child) for child in node.children]
        if not below:
            below_y = _MARGIN + rows * (HEIGHT + _GAP_Y)
            rows += 1
        y = (below[0] + below[-1]) / 2 if below else below_y
        job = node.job if is_shown(node.queue) else None
        name = job.name if job and job.name != "__default__" else None
        state = (job and job.state) or _STATES.get(node.dependency or "", "")
        left = node.child_count - len(node.children)
        subtitle = _short(f"{node.queue} · {name}" if name else node.queue, _MOST_SUBTITLE)
        is_current = (node.queue, node.id) == current
        boxes.insert(
            at, Box(node.queue, node.id, _short(node.id, _MOST_TITLE), subtitle, state, x, y, is_current, left)
        )
        right, middle = x + WIDTH, y + HEIGHT / 2
        for child_y in below:
            end = child_y + HEIGHT / 2
            bend = right + _GAP_X / 2
            lines.append(f"M{right} {middle}C{bend} {middle} {bend} {end} {right + _GAP_X} {end}")
        return y

    place(root)
    width = max(box.x for box in boxes) + WIDTH + _MARGIN
    return Graph(boxes, lines, width, rows * (HEIGHT + _GAP_Y) - _GAP_Y + 2 * _MARGIN)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
