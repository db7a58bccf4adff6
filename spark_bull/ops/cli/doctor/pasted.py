"""Makes the commands in an advice ready to be pasted: with the address of Redis and the login, without its secret."""

from __future__ import annotations

import re
from argparse import Namespace
from shlex import join, quote
from typing import Final

from spark_bull.core.store.connection import Connection

#: A secret in a URL: between `:` and `@`, or as a setting.
_SECRET: Final = re.compile(r"(://[^:@/\s]*:)[^@/\s]*(?=@)|([?&]password=)[^&\s]*")
#: What stands for it: redis-cli reads the password from this variable, too.
_VARIABLE: Final = "$REDISCLI_AUTH"


def with_address(advice: str, connection: Connection) -> str:
    """Adds the address of the server, and the login, to calls of redis-cli. Only an administrator may change users."""
    if "redis-cli " not in advice:
        return advice
    settings = connection.arguments
    where = ["-s", settings["path"]] if "path" in settings else ["-h", settings["host"], "-p", str(settings["port"])]
    if connection.settings.url.startswith("rediss"):
        where.append("--tls")
    if settings.get("db"):
        where += ["-n", str(settings["db"])]
    login = ["--user", settings["username"]] if settings.get("username") else []
    login += ["--askpass"] if settings.get("password") else []
    advice = advice.replace("redis-cli ACL ", f"{join(['redis-cli', *where])} ACL ")
    return re.sub(r"redis-cli (?=[A-Z])", lambda _: f"{join(['redis-cli', *where, *login])} ", advice)


def with_connection(advice: str, args: Namespace) -> str:
    """Adds the given arguments of the connection to calls of spark-bull."""
    given = [f"--{name} {quote(value)}" for name in ("prefix", "protocol") if (value := getattr(args, name))]
    if args.url is not None:
        hidden = _SECRET.sub(lambda secret: f"{secret[1] or secret[2]}{_VARIABLE}", args.url)
        given.insert(0, f"--url {quote(args.url)}" if hidden == args.url else f'--url "{hidden}"')
    return re.sub(r"\bspark-bull (?=[a-z])", lambda _: " ".join(["spark-bull", *given, ""]), advice)
