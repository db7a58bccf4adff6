"""What is wrong with TLS, and which setting to check: a call that is repeated fails again."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Any, Final

from spark_bull.core.errors import OptionError

#: Settings of redis-py that name files.
_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
#: OpenSSL's numbers of the errors that a name, or an address, is not one of those in the certificate.
_OTHER_ADDRESS: Final = (62, 64)


def check_files(arguments: Mapping[str, Any]) -> None:
    """Raises OptionError for a file of certificates or keys that cannot be read. arguments: those of redis-py."""
    for name in _FILES:
        path = arguments.get(name)
        if path is not None and not os.access(path, os.R_OK):
            raise OptionError(f"expected `redis.{name}` to be a file that this machine can read, got: {path!r}")


def tls_message(error: BaseException, where: str) -> str:
    """The message for an error of TLS; empty for a connection that was closed, and for all other errors."""
    if not isinstance(error, ssl.SSLError) or isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return ""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message.removesuffix(".")
        if error.verify_code in _OTHER_ADDRESS:
            return (
                f"the certificate of Redis at {where} is for another address: {said}: use an address that the "
                "certificate has, or set `redis.ssl_check_hostname` to false"
            )
        return (
            f"the certificate of Redis at {where} is not trusted: {said}: set `redis.ssl_ca_certs` to the file of the "
            "authority that signed it"
        )
    said = (error.reason or str(error)).lower().replace("_", " ")
    if "alert" in said:
        return (
            f"Redis at {where} refused the certificate of the client: {said}: set `redis.ssl_certfile` and "
            "`redis.ssl_keyfile`"
        )
    return (
        f"no TLS connection to Redis at {where}: {said}: check the files of `redis.ssl_ca_certs`, `redis.ssl_certfile` "
        "and `redis.ssl_keyfile`, or use a URL without TLS if Redis has none"
    )


def tls_hint(url: str) -> str:
    """Advice for a server that has never answered, but has accepted a connection."""
    if not url.startswith("rediss"):
        return "; if the server requires TLS, use rediss:// in `url`"
    return (
        "; if the server requires a certificate of the client, set `redis.ssl_certfile` and `redis.ssl_keyfile`; "
        "if it has no TLS, use redis:// in `url`"
    )
