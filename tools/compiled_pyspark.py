"""Lets the Python processes that Spark starts import the compiled modules of PySpark.

Spark puts `pyspark.zip`, which has sources only, first on their path: each process compiles them, which takes 1.3 s of
CPU. Python runs the line of a .pth file when it starts, see the module `site`.
"""

from __future__ import annotations

import site
from pathlib import Path
from typing import Final

FILE: Final = "compiled_pyspark.pth"
LINE: Final = 'import sys; sys.path[:] = [path for path in sys.path if not path.endswith("/python/lib/pyspark.zip")]\n'

if __name__ == "__main__":
    (Path(site.getsitepackages()[0]) / FILE).write_text(LINE)
