"""Helpers for tests of the packet filter."""

import json
import socket


def ipfw(world, *words):
    return world.admin("ipfw", *words).finish()


def ipfw_or_nothing(world):
    listed = world.admin("ipfw", "list")
    return listed.output().splitlines() if listed.wait(10) == 0 else []


def counts(world):
    """Packets by the number of a rule."""
    return {row["number"]: row["packets"] for row in json.loads(ipfw(world, "--json", "show"))}


def attempt(world, port, seconds=5):
    """A new connection's errno, or the connection."""
    with world.at_peer():
        client = socket.socket()
    client.settimeout(seconds)
    try:
        client.connect((world.STACK, port))
    except OSError as error:
        client.close()
        return type(error)
    return client


def is_echoed(client):
    client.settimeout(5)
    client.sendall(b"x")
    return client.recv(1) == b"x"
