"""Accepts connections, answers requests, and prints how each connection ends: `end of PORT:
ERROR`. With the argument `shared` several such programs share the port, with `probes` connections
are kept alive."""

import errno
import socket
import sys
import threading


def serve(client, port):
    try:
        while data := client.recv(1000):
            client.sendall(data)
        print(f"end of {port}: FIN", flush=True)
    except OSError as error:
        print(f"end of {port}: {errno.errorcode[error.errno]}", flush=True)
    client.close()


with socket.create_server(("0.0.0.0", int(sys.argv[1])), reuse_port="shared" in sys.argv) as server:
    while True:
        client, (_, port) = server.accept()
        if "probes" in sys.argv:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        threading.Thread(target=serve, args=(client, port), daemon=True).start()
