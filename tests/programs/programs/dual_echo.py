"""An asyncio server on [::] for both families: sends each peer the peer's own address."""

import asyncio
import socket
import sys


async def serve(reader, writer):
    while await reader.readline():
        writer.write(writer.get_extra_info("peername")[0].encode() + b"\n")
        await writer.drain()
    writer.close()


async def main():
    listener = socket.create_server(
        ("::", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True
    )
    server = await asyncio.start_server(serve, sock=listener)
    print("ready")
    async with server:
        await server.serve_forever()


asyncio.run(main())
