"""Runs `python -m MODULE ARGUMENTS…` as a fork of the server in fork_server.py: `fork_client.py MODULE ARGUMENTS…`.

It imports little, since its start is all that such a process costs.
"""

from __future__ import annotations

import json
import os
import socket
import sys


def main() -> int:
    request = {"arguments": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()}
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.environ["SPARK_BULL_TEST_FORKS"])
        socket.send_fds(server, [json.dumps(request).encode() + b"\n"], [0, 1, 2])
        code = int(server.recv(16) or b"1")
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
