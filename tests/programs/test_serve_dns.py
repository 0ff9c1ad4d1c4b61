"""`slipstack serve dns` beside NSD and Knot: the same queries, section by section; and malformed
queries."""

import contextlib
import json
import random
import socket
import struct
import sys
import time

from harness import Skip, test
from harness.process import until
from harness.world import ROOT
from test_serve import ALONE, serve

sys.path.append(str(ROOT / "tests" / "dns"))

from compare import compare  # noqa: E402
from message import parsed, question  # noqa: E402
from servers import KNOT_PORT, NSD_PORT, ask, start_knot, start_nsd  # noqa: E402
from zones import SOA, mixed, write  # noqa: E402


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
    zone.write_text(mixed())
    serve(world, "dns", "--zone", f"example.test={zone}", "--port", 53)


def serve_zones(world, files, *more):
    words = [word for origin, path in files.items() for word in ("--zone", f"{origin}={path}")]
    return serve(world, "dns", "--port", 53, *words, *more)


@test(modes=ALONE)
def answers_are_those_of_nsd_and_knot(world):
    seed = random.randrange(1 << 32)
    files = write(world.folder, 1000, seed)
    serve_zones(world, files, "--nsid", "our")
    targets = {"ours": (world.STACK, 53)}
    for name, start_other, port in (("nsd", start_nsd, NSD_PORT), ("knot", start_knot, KNOT_PORT)):
        with contextlib.suppress(Skip):
            start_other(world, files)
            targets[name] = (world.PEER, port)
    if len(targets) == 1:
        raise Skip("neither nsd nor knot is installed")
    lines, _ = compare(world, targets, files, 4000, seed, report=lambda line: None)
    assert not lines, f"seed {seed}: {len(lines)} differences\n" + "\n".join(lines[:20])


@test(modes=ALONE)
def queries_over_tcp_are_answered_in_order_and_whole(world):
    start(world)
    names = ["web", "big", "none", "www"] * 25
    answers = ask_tcp(
        world,
        53,
        [
            question(f"{name}.example.test", 16 if name == "big" else 1, number)
            for number, name in enumerate(names)
        ],
    )
    for number, (name, answer) in enumerate(zip(names, answers, strict=True)):
        assert struct.unpack("!H", answer[:2])[0] == number
        found = parsed(answer)
        assert found["rcode"] == (3 if name == "none" else 0) and not found["tc"]
        assert len(found["answer"]) == {"web": 2, "big": 30, "none": 0, "www": 3}[name]
    assert parsed(ask(world, world.STACK, 53, question("big.example.test", 16)))["tc"]


@test(modes=ALONE)
def tcp_has_an_idle_timeout_and_refuses_oversized_messages(world):
    zone = world.folder / "zone"
    zone.write_text(
        mixed() + "".join(f'huge TXT "{number:03} {"x" * 250}"\n' for number in range(300))
    )
    serve(world, "dns", "--zone", f"example.test={zone}", "--port", 53, "--idle", 1)
    for size in (None, 4096):
        huge = parsed(ask_tcp(world, 53, [question("huge.example.test", 16, size=size)])[0])
        assert huge["rcode"] == 2 and not huge["tc"] and not huge["answer"]
        assert parsed(ask(world, world.STACK, 53, question("huge.example.test", 16, size=size)))[
            "tc"
        ]
    wide = parsed(
        ask_tcp(world, 53, [question("wide.example.test", 1, options=struct.pack("!HH", 11, 0))])[0]
    )
    assert len(wide["answer"]) == 300 and wide["edns"]["options"][11] == struct.pack(
        "!H", 10
    ), "one second"
    with world.connect(53) as sock:
        began = time.monotonic()
        assert sock.recv(1) == b"" and 0.9 < time.monotonic() - began < 3


@test(modes=ALONE)
def equal_answers_are_limited_in_rate_and_counted(world):
    zone = world.folder / "zone"
    zone.write_text(mixed())
    config = world.folder / "dns.toml"
    config.write_text(
        f'[dns]\nrate-limit = 20\nslip = 2\n[[dns.zone]]\nname = "example.test"\nfile = "{zone}"\n'
    )
    server = serve(world, "dns", "--port", 53, "--config", config, "--stats", 1)
    with world.peer_ns.inside():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def count(names, options=b""):
        for number, name in enumerate(names):
            sock.send(question(f"{name}.example.test", 1, number, options=options))
        whole = truncated = 0
        with contextlib.suppress(TimeoutError):
            while True:
                answer = parsed(sock.recv(65536))
                truncated += answer["tc"]
                whole += not answer["tc"]
        return whole, truncated, answer

    with sock:
        sock.settimeout(0.4)
        sock.connect((world.STACK, 53))
        # A second's allowance at once, and the allowance earned meanwhile; of the others every
        # second one is truncated.
        whole, truncated, _ = count(["web"] * 100)
        assert 20 <= whole <= 30 and abs(truncated - (100 - whole) // 2) <= 1, (whole, truncated)
        whole, truncated, _ = count([f"x{number}" for number in range(100)])
        assert 20 <= whole <= 30, "names that do not exist are one kind"
        assert count([f"{label}.wild" for label in "abcdefghij"])[0] == 10
        # A client with our cookie is no forger.
        _, _, answer = count(["mail"], b"\0\x0a\0\x08abcdefgh")
        cookie = answer["edns"]["options"][10]
        assert count(["web"] * 100, b"\0\x0a\0\x18" + cookie)[:2] == (100, 0)
    until(lambda: '"A":311' in server.output(), 3, "the figures")
    figures = json.loads(
        [line for line in server.output().splitlines() if line.startswith("{")][-1]
    )
    assert (
        figures["rate-dropped"] + figures["udp"] == 311
        and figures["rate-slipped"] == figures["truncated"] > 60
    ), figures
    assert figures["types"] == {"A": 311} and figures["rcodes"]["NXDOMAIN"] >= 20, figures


@test(modes=ALONE)
def messages_that_are_no_queries_are_refused_or_dropped(world):
    start(world)

    def code(message):
        return ask(world, world.STACK, 53, message)[3] & 15

    plain = question("web.example.test", 1)
    assert code(question("web.elsewhere.test", 1)) == 5
    assert code(plain[:-1]) == 1
    assert code(plain[:2] + b"\x28\0" + plain[4:]) == 4, "another opcode"
    assert code(plain[:12] + b"\xc0\x0c" + plain[-4:]) == 1, "a pointer in the question"
    assert code(plain[:4] + b"\0\2" + plain[6:]) == 1, "two questions"
    assert (
        ask(world, world.STACK, 53, question("wEb.example.test", 1))[12:16] == b"\3wEb"
    ), "the question as it was asked"
    try:
        ask(world, world.STACK, 53, plain[:2] + b"\x80" + plain[3:])
        raise AssertionError("a response was answered")
    except TimeoutError:
        pass
    # The server continues.
    assert code(plain) == 0


@test(modes=ALONE)
def a_zone_with_an_error_is_refused_with_its_line(world):
    zone = world.folder / "zone"
    zone.write_text(SOA + "bad A 1.2.3\n")
    words = [
        str(world.slipstack),
        "serve",
        "dns",
        "--zone",
        f"example.test={zone}",
        "--run-dir",
        str(world.run_dir),
        *world.device_options(),
    ]
    done = world.process(world.stack_ns.prefix() + words)
    assert done.wait(10) == 1
    # The position is that of the reader: at the end of the token that it could not parse.
    lines = [f"{zone}:{SOA.count(chr(10)) + more}:" for more in (1, 2)]
    assert any(line in done.errors() for line in lines), done.tail()
