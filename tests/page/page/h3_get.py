"""A client of HTTP/3 (aioquic) whose socket is replaced while the answer comes, as by a NAT:
`h3_get.py ADDRESS PORT PATH` prints the SHA-256 of the body."""

import asyncio
import hashlib
import socket
import ssl
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated

LIMIT_S = 20


class Client(QuicConnectionProtocol):
    def __init__(self, *words, **keywords):
        super().__init__(*words, **keywords)
        self.http = H3Connection(self._quic)
        self.body = bytearray()
        self.length = None
        self.grown = asyncio.Event()

    def ask(self, path):
        headers = {b":method": b"GET", b":scheme": b"https", b":authority": b"page.test"}
        stream = self._quic.get_next_available_stream_id()
        headers[b":path"] = path.encode()
        self.http.send_headers(stream, list(headers.items()), end_stream=True)
        self.transmit()

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated) and event.error_code not in (0, 0x100):
            sys.exit(f"ended after {len(self.body)} bytes: {event.reason_phrase or event}")
        for one in self.http.handle_event(event):
            if isinstance(one, HeadersReceived):
                headers = dict(one.headers)
                assert headers[b":status"] == b"200", headers
                self.length = int(headers[b"content-length"])
            if isinstance(one, DataReceived):
                self.body += one.data
                self.grown.set()

    async def has(self, share):
        """Waits for this share of the body."""
        while self.length is None or len(self.body) < self.length * share:
            self.grown.clear()
            await self.grown.wait()

    async def rebind(self):
        self._transport.close()
        sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(("::", 0))
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: self, sock=sock)
        # Something is sent, so that the server sees the other port.
        await self.ping()


async def get(address, port, path):
    settings = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, idle_timeout=5)
    settings.verify_mode = ssl.CERT_NONE
    async with connect(address, port, configuration=settings, create_protocol=Client) as client:
        client.ask(path)
        await client.has(0.3)
        await client.rebind()
        await client.has(1)
        print(hashlib.sha256(client.body).hexdigest())


address, port, path = sys.argv[1:]
asyncio.run(asyncio.wait_for(get(address, int(port), path), LIMIT_S))
