"""Opens a connection with data (MSG_FASTOPEN) to each address that a client names, and says what
came of it."""

import errno
import socket
import sys

MSG_FASTOPEN = 0x20000000


def outcome(address, port):
    with socket.socket() as sock:
        try:
            sent = sock.sendto(b"hello", MSG_FASTOPEN, (address, int(port)))
        except OSError as error:
            return "EOPNOTSUPP" if error.errno == errno.EOPNOTSUPP else errno.errorcode[error.errno]
        return f"sent {sent}"


with socket.create_server(("", int(sys.argv[1]))) as server:
    while True:
        client, _ = server.accept()
        with client:
            # A client that only looks whether the port is open names none.
            if named := client.recv(100).decode().split():
                client.sendall(outcome(*named).encode())
