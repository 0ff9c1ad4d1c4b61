"""`slipstack serve dns` beside NSD: the same questions, section by section."""

import random
import shutil
import socket
import struct

from harness import Skip, test
from harness.process import until
from test_serve import ALONE, serve

TYPES = {"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "PTR": 12, "MX": 15, "TXT": 16, "AAAA": 28, "SRV": 33, "DNAME": 39, "DS": 43, "CAA": 257, "TYPE731": 731}

ZONE = """$TTL 3600
@ IN SOA ns1 host 1 7200 900 604800 300
@ NS ns1
@ NS ns.elsewhere.test.
@ MX 10 mail
@ TXT "hello" "world"
ns1 A 10.0.0.1
ns1 AAAA fd00::1
mail A 10.0.0.2
www CNAME web
web 60 A 10.0.0.3
web 60 A 10.0.0.4
loop1 CNAME loop2
loop2 CNAME loop1
far CNAME host.elsewhere.test.
dangling CNAME nothing
*.wild TXT "star"
*.wild MX 5 mail
here.wild A 10.0.0.5
a.b.c A 10.0.0.6
sub NS ns.sub
sub NS ns1
ns.sub A 10.0.0.7
_sip._tcp SRV 0 5 5060 mail
alias CNAME x.wild
old DNAME new
x.new A 10.0.0.8
strange TYPE731 \\# 3 abcdef
@ TYPE257 \\# 14 00056973737565 63612e74657374
"""
BIG = "".join(f'big TXT "{number:03} {"x" * 100}"\n' for number in range(30))
NAMES = [
    "", "ns1", "mail", "www", "web", "WeB", "loop1", "far", "dangling", "wild", "x.wild", "a.b.wild", "here.wild", "below.here.wild", "c", "b.c", "a.b.c",
    "x.b.c", "sub", "ns.sub", "deep.down.sub", "_sip._tcp", "_tcp", "alias", "old", "x.old", "y.old", "a.x.old", "strange", "none", "none.web", "*.wild", "big",
]  # fmt: skip


def encode(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".") if label) + b"\0"


def question(name, qtype, ident=1, size=1232):
    edns = b"" if size is None else b"\0" + struct.pack("!HHIH", 41, size, 0, 0)
    return struct.pack("!HHHHHH", ident, 0, 1, 0, 0, 1 if edns else 0) + encode(name) + struct.pack("!HH", qtype, 1) + edns


def read_name(data, at):
    labels, end = [], None
    while length := data[at]:
        if length >= 0xC0:
            end = end or at + 2
            at = (length & 0x3F) << 8 | data[at + 1]
            continue
        labels.append(data[at + 1 : at + 1 + length].decode().lower())
        at += 1 + length
    return ".".join(labels), end or at + 1


def rdata(data, at, length, rtype):
    """With names written out, so that compression makes no difference."""
    skip = {2: 0, 5: 0, 12: 0, 39: 0, 15: 2, 33: 6, 6: 0}.get(rtype)
    if skip is None:
        return data[at : at + length]
    name, end = read_name(data, at + skip)
    more = ()
    if rtype == 6:
        other, end = read_name(data, end)
        more = (other, data[end : at + length])
    return (data[at : at + skip], name, *more)


def parsed(data):
    flags, questions, *counts = struct.unpack("!HHHHH", data[2:12])
    at = 12
    for _ in range(questions):
        at = read_name(data, at)[1] + 4
    sections = []
    for count in counts:
        records = []
        for _ in range(count):
            name, at = read_name(data, at)
            rtype, _, ttl, length = struct.unpack("!HHIH", data[at : at + 10])
            at += 10
            if rtype != 41:
                records.append((name, rtype, ttl, rdata(data, at, length, rtype)))
            at += length
        sections.append(sorted(records, key=repr))
    return {"rcode": flags & 15, "aa": bool(flags & 0x400), "tc": bool(flags & 0x200), "answer": sections[0], "authority": sections[1], "additional": sections[2]}


def ask(world, address, port, message):
    with world.peer_ns.inside():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sock:
        sock.settimeout(5)
        sock.connect((address, port))
        sock.send(message)
        return sock.recv(65536)


def ask_tcp(world, port, messages, address=None):
    """All messages at once on one connection."""
    with world.connect(port, address=address) as sock:
        sock.sendall(b"".join(struct.pack("!H", len(message)) + message for message in messages))
        data, answers = b"", []
        while len(answers) < len(messages):
            while len(data) < 2 or len(data) < 2 + struct.unpack("!H", data[:2])[0]:
                piece = sock.recv(65536)
                assert piece, "the connection ended"
                data += piece
            length = struct.unpack("!H", data[:2])[0]
            answers.append(data[2 : 2 + length])
            data = data[2 + length :]
        return answers


def start(world):
    zone = world.folder / "zone"
    zone.write_text(ZONE + BIG)
    serve(world, "dns", "--zone", f"example.test={zone}", "--port", 53)
    return zone


def start_nsd(world, zone):
    nsd = shutil.which("nsd", path="/usr/sbin:/usr/bin")
    if nsd is None:
        raise Skip("nsd is not installed")
    conf = world.folder / "nsd.conf"
    conf.write_text(
        f'server:\n ip-address: {world.PEER}\n port: 5300\n username: ""\n database: ""\n zonesdir: "{world.folder}"\n pidfile: ""\n'
        f' xfrdfile: "{world.folder}/xfrd"\n zonelistfile: "{world.folder}/list"\n minimal-responses: no\n rrl-ratelimit: 0\n'
        f'remote-control:\n control-enable: no\nzone:\n name: example.test\n zonefile: "{zone}"\n'
    )
    started = world.peer(nsd, "-d", "-c", conf)

    def answers():
        assert started.is_running(), started.tail()
        try:
            return ask(world, world.PEER, 5300, question("example.test", 6))
        except OSError:
            return False

    until(answers, 10, "nsd answers")


@test(modes=ALONE)
def answers_are_those_of_nsd(world):
    start_nsd(world, start(world))
    differences = []

    def compare(name, qtype, size):
        message = question(name, qtype, random.randrange(65536), size)
        ours, theirs = (parsed(ask(world, address, port, message)) for address, port in ((world.STACK, 53), (world.PEER, 5300)))
        # What does not fit is left out in whole sets here, and in single records there.
        keys = ["rcode", "aa", "tc"] if theirs["tc"] or ours["tc"] else ["rcode", "aa", "answer", "authority"]
        # NSD adds its name servers to answers; they are nobody's question.
        if theirs["answer"] and not ours["authority"]:
            keys = [key for key in keys if key != "authority"]
        for key in keys:
            if ours[key] != theirs[key]:
                differences.append(f"{name} {qtype} {size}: {key} {ours[key]} != {theirs[key]}")

    for name in NAMES:
        full = f"{name}.example.test" if name else "example.test"
        for qtype in TYPES.values():
            compare(full, qtype, 1232)
    labels = ["www", "x", "sub", "wild", "here", "old", "none", "c", "b", "new"]
    for _ in range(1500):
        name = ".".join(random.choices(labels, k=random.randrange(1, 4)))
        compare(f"{name}.example.test", random.choice(list(TYPES.values())), random.choice([None, 512, 1232, 4096]))
    assert not differences, f"{len(differences)} differences\n" + "\n".join(differences[:20])


@test(modes=ALONE)
def queries_over_tcp_are_answered_in_order_and_whole(world):
    start(world)
    names = ["web", "big", "none", "www"] * 25
    answers = ask_tcp(world, 53, [question(f"{name}.example.test", 16 if name == "big" else 1, number) for number, name in enumerate(names)])
    for number, (name, answer) in enumerate(zip(names, answers, strict=True)):
        assert struct.unpack("!H", answer[:2])[0] == number
        found = parsed(answer)
        assert found["rcode"] == (3 if name == "none" else 0) and not found["tc"]
        assert len(found["answer"]) == {"web": 2, "big": 30, "none": 0, "www": 3}[name]
    assert parsed(ask(world, world.STACK, 53, question("big.example.test", 16)))["tc"]


@test(modes=ALONE)
def what_is_no_query_is_refused_or_dropped(world):
    start(world)

    def code(message):
        return ask(world, world.STACK, 53, message)[3] & 15

    plain = question("web.example.test", 1)
    assert code(question("web.elsewhere.test", 1)) == 5
    assert code(plain[:-1]) == 1
    assert code(plain[:2] + b"\x28\0" + plain[4:]) == 4, "another opcode"
    assert code(plain[:12] + b"\xc0\x0c" + plain[-4:]) == 1, "a pointer in the question"
    assert code(plain[:4] + b"\0\2" + plain[6:]) == 1, "two questions"
    assert ask(world, world.STACK, 53, question("wEb.example.test", 1))[12:16] == b"\3wEb", "the question as it was asked"
    try:
        ask(world, world.STACK, 53, plain[:2] + b"\x80" + plain[3:])
        raise AssertionError("a response was answered")
    except TimeoutError:
        pass
    # It goes on.
    assert code(plain) == 0


@test(modes=ALONE)
def a_zone_with_an_error_is_refused_with_its_line(world):
    zone = world.folder / "zone"
    zone.write_text(ZONE + "bad A 1.2.3\n")
    words = [str(world.slipstack), "serve", "dns", "--zone", f"example.test={zone}", "--run-dir", str(world.run_dir), *world.device_options()]
    done = world.process(world.stack_ns.prefix() + words)
    assert done.wait(10) == 1
    # The position is where the reader stood: at the end of what it could not take.
    lines = [f"{zone}:{ZONE.count(chr(10)) + more}:" for more in (1, 2)]
    assert any(line in done.errors() for line in lines), done.tail()
