"""asyncio echo. Usage: asyncio_echo.py server ADDRESS PORT
                        asyncio_echo.py client ADDRESS PORT CONNECTIONS BYTES
                        asyncio_echo.py both ADDRESS PORT CONNECTIONS BYTES   (TARGETS=a,b)"""

import asyncio
import hashlib
import os
import sys


async def serve(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def echoed(address, port, number, size):
    data = hashlib.shake_256(str(number).encode()).digest(size)
    reader, writer = await asyncio.open_connection(address, port)

    async def send():
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    sending = asyncio.ensure_future(send())
    got = await reader.read(-1)
    await sending
    writer.close()
    await writer.wait_closed()
    assert got == data, f"connection {number}: {len(got)} of {size} bytes"


async def ask(address, port, count, size):
    await asyncio.gather(*(echoed(address, port, number, size) for number in range(count)))
    print(f"{count} echoed", flush=True)


async def main(role, address, port, count=0, size=0):
    if role == "client":
        return await ask(address, int(port), int(count), int(size))
    server = await asyncio.start_server(serve, address, int(port), backlog=1024)
    if role == "both":
        for target in os.environ["TARGETS"].split(","):
            await ask(target, int(port), int(count), int(size))
        server.close()
        return
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
