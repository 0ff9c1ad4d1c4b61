"""Calls with link-local addresses, one for each input line: link_local.py OWN PEER TCP_PORT
UDP_PORT LISTEN_PORT."""

import errno
import socket
import sys

OWN, PEER = sys.argv[1:3]
TCP, UDP, LISTEN = map(int, sys.argv[3:])
LINK, OTHER = socket.if_nametoindex("eth1"), socket.if_nametoindex("lo")
SCOPES = {0: "no scope", LINK: "eth1", OTHER: "lo"}
NAMES = {OWN: "own", PEER: "peer"}


def told(address):
    return f"{NAMES.get(address[0].split('%')[0], address[0])} on {SCOPES[address[3]]}"


def say(what, call):
    try:
        outcome = call()
    except OSError as error:
        outcome = errno.errorcode[error.errno]
    print(f"{what}: {told(outcome) if isinstance(outcome, tuple) else outcome}", flush=True)


def made(kind):
    new = socket.socket(socket.AF_INET6, kind)
    new.settimeout(5)
    return new


def exchange(connected):
    connected.send(b"hello")
    return connected.recv(100).decode()


for kind, name, port in ((socket.SOCK_STREAM, "tcp", TCP), (socket.SOCK_DGRAM, "udp", UDP)):
    for scope in (0, OTHER, LINK):
        with made(kind) as one:
            say(f"{name} connect {SCOPES[scope]}", lambda: one.connect((PEER, port, 0, scope)))
            if scope == LINK:
                say("  from", one.getsockname)
                say("  to", one.getpeername)
                say("  exchange", lambda: exchange(one))
    for scope in (0, OTHER, LINK):
        with made(kind) as one:
            say(f"{name} bind {SCOPES[scope]}", lambda: one.bind((OWN, 0, 0, scope)))
            if scope == LINK:
                say("  name", one.getsockname)
                say("  connect no scope", lambda: one.connect((PEER, port, 0, 0)))
                say("  to", one.getpeername)
                say("  exchange", lambda: exchange(one))
for scope in (OTHER, LINK, 0):
    with made(socket.SOCK_DGRAM) as one:
        say(f"udp sendto {SCOPES[scope]}", lambda: one.sendto(b"hello", (PEER, UDP, 0, scope)))
        if scope != OTHER:
            say("  from", lambda: one.recvfrom(100)[1])
with made(socket.SOCK_STREAM) as listener:
    listener.bind(("::", LISTEN))
    listener.listen()
    listener.settimeout(20)
    print("listening", flush=True)
    connected, address = listener.accept()
    say("accepted", lambda: address)
    say("  name", connected.getsockname)
    connected.send(connected.recv(100))
