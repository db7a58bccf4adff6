"""Modules of Arrow, imported with the first use of one of their names.

Spark runs each step of a read or write in a process of its own. Those that plan or commit a write load the same modules
of this package as its tasks, but touch no Arrow data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_bull.core.late import late

__all__ = ["pa", "pc", "pj"]

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.json as pj
else:
    pa, pc, pj = late("pyarrow", "pyarrow.compute", "pyarrow.json")
