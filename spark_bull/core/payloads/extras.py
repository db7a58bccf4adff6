"""The modules that need a package of an extra."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

from spark_bull.core.errors import OptionError

if TYPE_CHECKING:
    from types import ModuleType


def aes_gcm() -> ModuleType:
    """The module with the cipher. Raises OptionError without the package cryptography."""
    try:
        return import_module("spark_bull.core.payloads.aes_gcm")
    except ModuleNotFoundError as error:
        _raise_missing_package("cryptography", "encryptWith", "encrypt", error)


def objects() -> ModuleType:
    """The module that stores objects. Raises OptionError without the package fsspec."""
    try:
        return import_module("spark_bull.core.payloads.objects")
    except ModuleNotFoundError as error:
        _raise_missing_package("fsspec", "offloadTo", "offload", error)


def _raise_missing_package(package: str, option: str, extra: str, error: ModuleNotFoundError) -> NoReturn:
    raise OptionError(
        f"expected the package {package} for `{option}`, found none ({error.name}): "
        f"pip install 'spark-bull[{extra}]', on the executors too"
    ) from None
