"""The version, for the package, its command and what is built of it."""

from typing import Final

VERSION: Final = "0.1.0"
