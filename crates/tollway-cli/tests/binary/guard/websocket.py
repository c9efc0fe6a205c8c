"""A WebSocket server, and a client that talks to it through the proxy whose address is read from stdin."""

import asyncio
import sys

from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed


async def echo(socket):
    async for message in socket:
        if message == "goodbye":
            await socket.close(4001, "as you say")
            return
        await socket.send(message)


async def main():
    async with serve(echo, "127.0.0.1", 0, subprotocols=["echo.v1"], max_size=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        address = await asyncio.to_thread(sys.stdin.readline)
        url = f"ws://{address.strip()}/socket?x=1"
        async with connect(url, subprotocols=["echo.v1"], proxy=None, max_size=None) as client:
            print("subprotocol", client.subprotocol)
            print("extensions", [extension.name for extension in client.protocol.extensions])
            for message in ["words", "ünïcode", b"\x00\xff" * 500_000, ""]:
                await client.send(message)
                assert await client.recv() == message
            print("echoed")
            await (await client.ping())
            print("pong")
            await asyncio.gather(*(client.send(str(number)) for number in range(1000)))
            assert [int(await client.recv()) for _ in range(1000)] == list(range(1000))
            print("in order")
            await client.send("goodbye")
            try:
                await client.recv()
            except ConnectionClosed as closed:
                print("closed", closed.rcvd.code, closed.rcvd.reason)


asyncio.run(main())
