"""`spark-bull serve`: the REST API and the page."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_bull.core.errors import OptionError
from spark_bull.ops.cli.arguments import OF_LISTEN, argument, flag, host_and_port, repeated
from spark_bull.ops.cli.command import command, until_interrupted

if TYPE_CHECKING:
    from spark_bull.ops.web.settings import Token

_EXTRA: Final = ("fastapi", "uvicorn", "jinja2")


def _serve(args: Namespace) -> None:
    try:
        from spark_bull.ops.web.server import WebServer
        from spark_bull.ops.web.settings import READ_TOKEN_VARIABLE, WRITE_TOKEN_VARIABLE, WebSettings
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
        scan_keys=not args.no_scan,
        protocol=args.protocol,
        host=host,
        port=port,
        read_token=_token(args.read_token_file, READ_TOKEN_VARIABLE),
        write_token=_token(args.write_token_file, WRITE_TOKEN_VARIABLE),
        tokens=() if args.tokens_file is None else tuple(_tokens(args.tokens_file)),
        read_only=args.read_only,
        host_names=tuple(args.host_name),
        root_path=args.root_path,
    )
    reads_only = "" if settings.allows_writing else " to read only"

    def note(url: str) -> None:
        print(f"listening on {url}{reads_only}; Ctrl-C ends it", file=sys.stderr, flush=True)

    server = WebServer(settings, note)
    # uvicorn raises KeyboardInterrupt again when it has closed the connections.
    with until_interrupted():
        server.run()


def _token(path: Path | None, variable: str) -> str | None:
    """Reads a token from a file, else from an environment variable; None if there is neither."""
    return os.environ.get(variable) or None if path is None else _read(path).strip()


def _tokens(path: Path) -> Iterator[Token]:
    """The tokens in a file: a line has a token, `read` or `write`, and names or globs of queues."""
    from spark_bull.ops.web.settings import Role, Token

    for number, line in enumerate(_read(path).splitlines(), 1):
        match line.split():
            case [text, ("read" | "write") as role, queues]:
                yield Token(text, Role[role.upper()], tuple(queues.split(",")))
            case [first, *_] if not first.startswith("#"):
                raise OptionError(f"expected line {number} of {path} to be `TOKEN read|write QUEUES`, got another form")


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"expected a file with a token, got: {path} ({type(error).__name__})") from None


COMMANDS: Final = (
    command(
        "serve",
        "serve a page and a REST API, until Ctrl-C",
        "serve --queue 'mail*'",
        _serve,
        argument(
            "--listen",
            type=host_and_port,
            default=("127.0.0.1", 8080),
            metavar="HOST:PORT",
            help="address (default: 127.0.0.1:8080); one that other machines reach demands tokens",
        ),
        *OF_LISTEN,
        repeated("--queue", "NAME", "name or glob of queues (default: all); may be repeated"),
        argument(
            "--read-token-file",
            type=Path,
            metavar="PATH",
            help="file with the token for reading (default: $SPARK_BULL_READ_TOKEN)",
        ),
        argument(
            "--write-token-file",
            type=Path,
            metavar="PATH",
            help="file with the token for reading and writing (default: "
            "$SPARK_BULL_WRITE_TOKEN); without it nobody can write",
        ),
        argument(
            "--tokens-file",
            type=Path,
            metavar="PATH",
            help="file with further tokens, a line each: TOKEN read|write QUEUES, such as mail,report-*",
        ),
        flag("--read-only", "let nobody write"),
        repeated(
            "--host-name",
            "NAME",
            "other name of the server in requests, such as a reverse proxy's; may be repeated",
        ),
        argument(
            "--root-path",
            default="",
            metavar="PATH",
            help="path under which a reverse proxy has the server, such as /bull (default: none)",
        ),
        of_queue=False,
    ),
)
