"""An echo server on [::], by streams and by datagrams: echo_both.py TCP_PORT UDP_PORT."""

import socket
import sys
import threading


def datagrams(port):
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as bound:
        bound.bind(("::", port))
        while True:
            data, sender = bound.recvfrom(65536)
            bound.sendto(data, sender)


def stream(connected):
    with connected:
        while data := connected.recv(65536):
            connected.sendall(data)


threading.Thread(target=datagrams, args=(int(sys.argv[2]),), daemon=True).start()
with socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6) as listener:
    while True:
        threading.Thread(target=stream, args=(listener.accept()[0],), daemon=True).start()
