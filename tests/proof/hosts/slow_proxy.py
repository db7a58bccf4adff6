"""Forwards each connection, all bytes later: `slow_proxy.py PORT TARGET DELAY_MS`."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress


async def main(port: int, target: int, delay_s: float) -> None:
    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        later = asyncio.get_running_loop().call_later
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                later(delay_s, writer.write, data)
        later(delay_s, writer.close)

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(pump(reader, server_writer), pump(server_reader, writer))

    async with await asyncio.start_server(carry, "0.0.0.0", port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 1000))
