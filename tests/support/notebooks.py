"""The notebooks of the package, and what they print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
#: The texts that each notebook prints, in this order and without spaces.
PRINTED = {
    "01_dispatch_and_read": (
        "|mail|wait|900|",
        "|mail|delayed|100|",
        '|1|delayed|welcome|{"id":0,"name":"customer-0"}|',
        '|2|wait|welcome|{"id":1,"name":"customer-1"}|NULL|',
        "|100|20",
        "600newslettersaredelayed",
        "|finished|1000|1000|NULL|NULL|",
        "|finished|10|10|nightly|1|",
        "1011{'wait':909,'active':0,'delayed':101,'prioritized':1",
    ),
    "02_workers_with_udfs": (
        "{'completed':1000}",
        "10.52['priced7']",
        "['0','1']1000",
        "{'completed':3,'failed':1}",
        "(-1,",
        "noroot",
        "{'completed':2,'failed':1}",
        '|1|completed|{"converted":0}|NULL|',
        '|2|completed|{"converted":11}|NULL|',
        "|3|failed|NULL|unknowncurrency|",
        "promoted=1",
    ),
    "03_talking_to_node": ("Nodeisthere", "|completed|196|2611700|", "Idonotlike50", "timesof200jobs"),
    "04_dead_letter_queue": (
        "100completed,200failed",
        "|noaddress|100|",
        "|nosuchhost:exmaple.org|100|",
        "|finished|100|100|0|0|0|",
        "|finished|100|100|0|0|0|",
        "{'completed':200}",
        "100waitforanaddress",
    ),
    "05_lakehouse": (
        "2processesofworkerswerekilled,6queries",
        "rowsin900",
        "jobsadded900",
        "outcomes900",
        "rowsinthetable900",
        "differentrows900",
    ),
}


def missing_in(path: Path, cells: Sequence[Mapping[str, Any]]) -> str:
    """The first expected text that these cells of a notebook have not printed, after those before it; "" if none."""
    printed = "".join(printed_by(cell) for cell in cells)
    place = 0
    for text in PRINTED[path.stem]:
        if text not in printed[place:]:
            return f"{text} is not in:\n{printed[place:]}"
        place = printed.index(text, place)
    return ""


def printed_by(cell: Mapping[str, Any]) -> str:
    """The output of a cell without spaces."""
    outputs = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell["outputs"]]
    return "".join("".join(text) for text in outputs).replace(" ", "")
