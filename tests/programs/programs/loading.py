"""Listens, loads for a while, and then serves whoever has come: sends every line back.
Usage: loading.py PORT SECONDS HOW

HOW: accept   the process itself, with a thread for each connection
     nodelay  the same; its listener has TCP_NODELAY and SO_KEEPALIVE, and each line is answered
              with what the connection has of them
     fork     two children that it forks after loading
     exec     the program that it becomes after loading
     both     the process, at a socket for each family: at the one for IPv6 only after it has loaded
              once more. On the next port it then closes the one for IPv6
     close    nobody: it closes its listener"""

import os
import socket
import sys
import threading
import time

NAGLE = (socket.IPPROTO_TCP, socket.TCP_NODELAY)
ALIVE = (socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def main():
    port, seconds, how = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    if how == "inherited":
        return serve(socket.socket(fileno=port), "accept")
    if how == "both":
        return serve_both(port, seconds)
    listener = socket.create_server(("0.0.0.0", port), backlog=8)
    if how == "nodelay":
        listener.setsockopt(*NAGLE, 1)
        listener.setsockopt(*ALIVE, 1)
    print("listens", flush=True)
    time.sleep(seconds)
    if how == "close":
        listener.close()
        time.sleep(60)
    if how == "exec":
        listener.set_inheritable(True)
        words = [sys.executable, "-u", __file__, str(listener.fileno()), "0", "inherited"]
        os.execv(sys.executable, words)
    if how == "fork" and not os.fork():
        pass
    serve(listener, how)


def serve_both(port, seconds):
    families = ("0.0.0.0", socket.AF_INET), ("::", socket.AF_INET6)
    own, next_one = (
        [socket.create_server((ip, number), family=family) for ip, family in families]
        for number in (port, port + 1)
    )
    print("listens", flush=True)
    time.sleep(seconds)
    for listener in own[0], next_one[0]:
        threading.Thread(target=serve, args=(listener, "accept"), daemon=True).start()
    print("serves IPv4", flush=True)
    time.sleep(seconds)
    next_one[1].close()
    serve(own[1], "accept")


def serve(listener, how):
    while True:
        sock = listener.accept()[0]
        threading.Thread(target=echo, args=(sock, how), daemon=True).start()


def echo(sock, how):
    with sock, sock.makefile("rwb") as stream:
        for line in stream:
            if how == "nodelay":
                line = b"%d%d\n" % (sock.getsockopt(*NAGLE), bool(sock.getsockopt(*ALIVE)))
            stream.write(line)
            stream.flush()


main()
