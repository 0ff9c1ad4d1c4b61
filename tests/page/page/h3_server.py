"""A server of HTTP/3 (aioquic): `h3_server.py PORT CERT KEY FOLDER` returns files, and the SHA-256
of what is posted."""

import asyncio
import hashlib
import sys
from pathlib import Path

from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated

port, cert, key, folder = sys.argv[1:]


class Server(QuicConnectionProtocol):
    http = None

    def quic_event_received(self, event):
        if isinstance(event, ProtocolNegotiated):
            self.http, self.requests = H3Connection(self._quic), {}
        for one in self.http.handle_event(event) if self.http else ():
            if isinstance(one, HeadersReceived):
                self.requests[one.stream_id] = (dict(one.headers), hashlib.sha256())
            elif isinstance(one, DataReceived):
                self.requests[one.stream_id][1].update(one.data)
            if one.stream_ended:
                self.answer(one.stream_id, *self.requests.pop(one.stream_id))

    def answer(self, stream, headers, posted):
        body = posted.hexdigest().encode()
        if headers[b":method"] == b"GET":
            body = (Path(folder) / headers[b":path"].decode().strip("/").split("?")[0]).read_bytes()
        said = [(b":status", b"200"), (b"content-length", b"%d" % len(body))]
        self.http.send_headers(stream, said)
        self.http.send_data(stream, body, end_stream=True)
        self.transmit()


async def main():
    settings = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    settings.load_cert_chain(cert, key)
    await serve("0.0.0.0", int(port), configuration=settings, create_protocol=Server)
    print("ready", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
