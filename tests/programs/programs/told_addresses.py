"""Answers, over TCP or UDP, IPv4 or IPv6, with the client's address."""

import asyncio
import socket
import sys


class Datagrams(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        self.transport.sendto(addr[0].encode() + b"\n", addr)


async def serve(reader, writer):
    while await reader.readline():
        writer.write(writer.get_extra_info("peername")[0].encode() + b"\n")
        await writer.drain()
    writer.close()


async def main():
    port = int(sys.argv[1])
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    for address in sys.argv[2:]:
        await loop.create_datagram_endpoint(Datagrams, local_addr=(address, port))
    server = await asyncio.start_server(serve, sock=listener)
    print("ready")
    async with server:
        await server.serve_forever()


asyncio.run(main())
