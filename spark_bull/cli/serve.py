"""`spark-bull serve`: the REST API and the page."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import suppress
from pathlib import Path
from typing import Final

from spark_bull.cli.command import Command, Output
from spark_bull.cli.interrupt import sigterm_as_sigint
from spark_bull.errors import OptionError

_EXTRA: Final = ("fastapi", "uvicorn", "jinja2")


def _serve(args: Namespace) -> Output:
    try:
        from spark_bull.web.server import WebServer
        from spark_bull.web.settings import READ_TOKEN_VARIABLE, WRITE_TOKEN_VARIABLE, WebSettings
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        raise OptionError(
            f"expected the packages of the extra `web`, found no {error.name}: run `pip install 'spark-bull[web]'`"
        ) from None
    host, port = args.listen
    settings = WebSettings(
        queues=tuple(args.queue or ["*"]),
        url=args.url,
        prefix=args.prefix,
        protocol=args.protocol,
        host=host,
        port=port,
        read_token=_token(args.read_token_file, READ_TOKEN_VARIABLE),
        write_token=_token(args.write_token_file, WRITE_TOKEN_VARIABLE),
        read_only=args.read_only,
        host_names=tuple(args.host_name),
    )
    reads_only = "" if settings.allows_writing else " to read only"

    def note(url: str) -> None:
        print(f"listening on {url}{reads_only}; Ctrl-C ends it", file=sys.stderr, flush=True)

    server = WebServer(settings, note)
    sigterm_as_sigint()
    # The regular way to stop it; uvicorn raises it again when it has closed the connections.
    with suppress(KeyboardInterrupt):
        server.run()
    return None


def _token(path: Path | None, variable: str) -> str | None:
    """Reads a token from a file, else from an environment variable; None if there is neither."""
    if path is None:
        return os.environ.get(variable) or None
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"expected a file with a token, got: {path} ({type(error).__name__})") from None


def address(text: str) -> tuple[str, int]:
    """Parses host:port, [host]:port or :port, which is all addresses, for argparse."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65_535 or (":" in host and not host.startswith("[")):
        raise ArgumentTypeError(f"expected host:port, such as 127.0.0.1:8080, got: {text!r}")
    return host.strip("[]") or "0.0.0.0", int(port)


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--listen",
        type=address,
        default=("127.0.0.1", 8080),
        metavar="HOST:PORT",
        help="address (default: 127.0.0.1:8080); one that other machines reach demands tokens",
    )
    parser.add_argument(
        "--queue", action="append", metavar="NAME", help="name or glob of queues (default: all); may be repeated"
    )
    parser.add_argument(
        "--read-token-file",
        type=Path,
        metavar="PATH",
        help="file with the token for reading (default: $SPARK_BULL_READ_TOKEN)",
    )
    parser.add_argument(
        "--write-token-file",
        type=Path,
        metavar="PATH",
        help="file with the token for reading and writing (default: "
        "$SPARK_BULL_WRITE_TOKEN); without it nobody can write",
    )
    parser.add_argument("--read-only", action="store_true", help="let nobody write")
    parser.add_argument(
        "--host-name",
        action="append",
        default=[],
        metavar="NAME",
        help="further name of the server in requests, such as that of a reverse proxy; may be repeated",
    )


SERVE: Final = Command(
    "serve",
    "serve a page and a REST API for queues, until Ctrl-C",
    "serve --queue 'mail*'",
    _serve,
    _add_arguments,
    of_queue=False,
)
