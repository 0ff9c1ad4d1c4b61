"""Connections and sockets that other programs inherit."""

from harness import test

ECHO = """
import socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
        print("ended", flush=True)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
Server((sys.argv[1], int(sys.argv[2])), Echo).serve_forever()
"""
PORT = 7220
QUESTIONS = [f"question {number}" for number in range(1, 6)]
ANSWERS = [*QUESTIONS, "subshell: line", "piece", "from a subshell", "last", "closed"]


def echo(world):
    server = world.peer("/usr/bin/python3", "-c", ECHO, world.peer_address, PORT)
    world.wait_port(PORT, address=world.peer_address)
    return server


@test
def a_script_keeps_its_connection_beside_the_programs_that_it_runs(world):
    echo(world)
    script = world.stack("/bin/bash", world.program("inherits.sh")[-1], world.peer_address, PORT)
    assert script.finish().split("\n")[:-1] == ANSWERS


@test
def a_static_program_that_a_script_starts_is_told_of(world):
    """ldconfig is static everywhere."""
    started = world.stack("/bin/sh", "-c", "/sbin/ldconfig -V; :")
    assert "ldconfig" in started.finish()
    assert "/sbin/ldconfig is statically linked" in started.errors(), started.errors()
    refused = world.stack("/bin/sh", "-c", "/sbin/ldconfig -V; echo $?", options=("--strict",))
    assert refused.finish() == "126\n"
    assert "--strict refuses it" in refused.errors(), refused.errors()
