"""NSD and Knot on the kernel beside our server; and queries to all of them at once."""

import select
import shutil
import socket
import time

from harness import Skip
from harness.process import until
from message import question

NSD_PORT, KNOT_PORT, BIND_PORT = 5300, 5301, 5302
PATH = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"


def find(*names):
    """Their paths; a test that needs one that is not there skips itself."""
    for name in names:
        if shutil.which(name, path=PATH) is None:
            raise Skip(f"{name} is not installed")
    return [shutil.which(name, path=PATH) for name in names]


def start_nsd(world, files, more="", zone_more=lambda origin: ""):
    (nsd,) = find("nsd")
    folder = world.folder / "nsd"
    folder.mkdir(exist_ok=True)
    conf = folder / "nsd.conf"
    zones = "".join(
        f'zone:\n name: {origin}\n zonefile: "{path}"\n{zone_more(origin)}'
        for origin, path in files.items()
    )
    conf.write_text(
        f'server:\n ip-address: {world.PEER}\n port: {NSD_PORT}\n username: ""\n database: ""\n'
        f' zonesdir: "{folder}"\n pidfile: ""\n xfrdfile: "{folder}/xfrd"\n zonelistfile:'
        f' "{folder}/list"\n xfrdir: "{folder}"\n minimal-responses: yes\n rrl-ratelimit: 0\n'
        " ipv4-edns-size: 1232\n xfrd-reload-timeout: 0\n answer-cookie: yes\n nsid:"
        f' "ascii_nsd"\n{more}remote-control:\n control-enable: no\n{zones}'
    )
    started = world.peer(nsd, "-d", "-c", conf)
    await_answers(world, started, world.PEER, NSD_PORT)
    return started


def start_knot(world, files, more="", zone_more=lambda origin: ""):
    (knotd,) = find("knotd")
    folder = world.folder / "knot"
    (folder / "db").mkdir(parents=True, exist_ok=True)
    conf = folder / "knot.conf"
    zones = "".join(
        f'  - domain: {origin}\n    file: "{path}"\n{zone_more(origin)}'
        for origin, path in files.items()
    )
    conf.write_text(
        f'server:\n    listen: {world.PEER}@{KNOT_PORT}\n    rundir: "{folder}"\n    udp-workers:'
        " 1\n    tcp-workers: 1\n    background-workers: 1\n    nsid: kno\ndatabase:\n    storage:"
        f' "{folder}/db"\n    journal-db-max-size: 64M\n    timer-db-max-size: 16M\n   '
        " kasp-db-max-size: 16M\n    catalog-db-max-size: 16M\nlog:\n  - target: stderr\n    any:"
        f" info\n{more}zone:\n{zones}"
    )
    started = world.peer(knotd, "-c", conf)
    await_answers(world, started, world.PEER, KNOT_PORT)
    return started


def start_bind(world, zones):
    (named,) = find("named")
    folder = world.folder / "bind"
    folder.mkdir(exist_ok=True)
    conf = folder / "named.conf"
    conf.write_text(
        f'options {{ directory "{folder}"; pid-file "{folder}/pid"; recursion no;\n'
        f' session-keyfile "{folder}/session.key"; dnssec-validation no; check-integrity no;\n'
        " max-records-per-type 0; check-names primary ignore; check-names secondary ignore;\n"
        f" listen-on port {BIND_PORT} {{ {world.PEER}; }}; listen-on-v6 {{ none; }};\n"
        " notify explicit; allow-transfer { any; }; minimal-responses yes; }; controls { };\n"
        f"{zones}"
    )
    started = world.peer(named, "-g", "-n", 1, "-c", conf)
    await_answers(world, started, world.PEER, BIND_PORT)
    return started


def await_answers(world, started, address, port, seconds=20):
    def answers():
        assert started.is_running(), started.tail()
        try:
            return ask(world, address, port, question("version.bind", 16, qclass=3), 0.5)
        except OSError:
            return False

    until(answers, seconds, f"the server at port {port} answers")


def ask(world, address, port, message, seconds=5):
    with world.peer_ns.inside():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sock:
        sock.settimeout(seconds)
        sock.connect((address, port))
        sock.send(message)
        return sock.recv(65536)


class Asker:
    """Sends a batch of questions to several servers and gathers what they answer, by number."""

    def __init__(self, world, targets):
        with world.peer_ns.inside():
            self.socks = {
                name: socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for name in targets
            }
        for name, target in targets.items():
            self.socks[name].connect(target)
            self.socks[name].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)

    def close(self):
        for sock in self.socks.values():
            sock.close()

    def ask(self, messages, seconds=3):
        """`messages` have the numbers of their places. Gives the answers of each server in that
        order, None for a missing one."""
        answers = {name: [None] * len(messages) for name in self.socks}
        for message in messages:
            for sock in self.socks.values():
                sock.send(message)
        by_sock = {sock: name for name, sock in self.socks.items()}
        missing = len(messages) * len(self.socks)
        end = time.monotonic() + seconds
        while missing and (left := end - time.monotonic()) > 0:
            for sock in select.select(list(by_sock), [], [], left)[0]:
                data = sock.recv(65536)
                number = int.from_bytes(data[:2], "big")
                place = answers[by_sock[sock]]
                if number < len(place) and place[number] is None:
                    place[number] = data
                    missing -= 1
        return answers
