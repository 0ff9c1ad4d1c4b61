"""A proxy of CONNECT and of SOCKS4 for clients of both: `relay.py ADDRESS PORT`."""

import socket
import struct
import sys
import threading


def read_until(sock, end):
    data = b""
    while not data.endswith(end):
        part = sock.recv(1)
        assert part, data
        data += part
    return data


def asked(sock):
    """The address that the client asks for, and the answer that it expects."""
    first = sock.recv(1)
    if first == b"C":
        where = read_until(sock, b"\r\n\r\n").split()[1].decode()
        host, _, port = where.rpartition(":")
        return (host, int(port)), b"HTTP/1.0 200 connected\r\n\r\n"
    command, port, address = struct.unpack(">BH4s", sock.recv(7, socket.MSG_WAITALL))
    assert (first, command) == (b"\4", 1), (first, command)
    read_until(sock, b"\0")
    host = socket.inet_ntoa(address)
    if address[:3] == bytes(3) and address[3]:
        # SOCKS4A: the name follows.
        host = read_until(sock, b"\0")[:-1].decode()
    return (host, port), b"\0\x5a" + bytes(6)


def copy(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)


def serve(sock):
    where, answer = asked(sock)
    with sock, socket.create_connection(where, timeout=10) as other:
        other.settimeout(None)
        sock.sendall(answer)
        back = threading.Thread(target=copy, args=(other, sock), daemon=True)
        back.start()
        copy(sock, other)
        back.join()


listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
