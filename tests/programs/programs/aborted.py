"""Accepts connections, answers requests, and prints how each connection ends: `end of PORT:
ERROR`. With a second argument several such programs share the port."""

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


with socket.create_server(("0.0.0.0", int(sys.argv[1])), reuse_port=len(sys.argv) > 2) as server:
    while True:
        client, (_, port) = server.accept()
        threading.Thread(target=serve, args=(client, port), daemon=True).start()
