"""`slipstack serve dns` beside NSD and Knot: the same questions, section by section; and what it does with bad ones."""

import contextlib
import random
import struct
import sys

from harness import Skip, test
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
    serve_zones(world, files, "--nsid", "ours")
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
    zone.write_text(SOA + "bad A 1.2.3\n")
    words = [str(world.slipstack), "serve", "dns", "--zone", f"example.test={zone}", "--run-dir", str(world.run_dir), *world.device_options()]
    done = world.process(world.stack_ns.prefix() + words)
    assert done.wait(10) == 1
    # The position is where the reader stood: at the end of what it could not take.
    lines = [f"{zone}:{SOA.count(chr(10)) + more}:" for more in (1, 2)]
    assert any(line in done.errors() for line in lines), done.tail()
