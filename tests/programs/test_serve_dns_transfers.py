"""Zones between `slipstack serve dns` and other name servers: transfers, NOTIFY, TSIG, catalogs;
and reloading."""

import signal
import socket
import struct
import sys
import threading
import time

from harness import test
from harness.process import until
from harness.world import ROOT
from test_serve import ALONE, serve

sys.path.append(str(ROOT / "tests" / "dns"))

from message import parsed, question, wire  # noqa: E402
from servers import (  # noqa: E402
    BIND_PORT,
    KNOT_PORT,
    NSD_PORT,
    ask,
    find,
    start_bind,
    start_knot,
    start_nsd,
)
from zones import SOA, mixed  # noqa: E402

A, SOA_TYPE, TXT, AXFR = 1, 6, 16, 252
SECRET = "c2xpcHN0YWNrIHNlY3JldCBmb3IgdGVzdHMhISEhISE="
KEY = f'[dns.key.transfer]\nalgorithm = "hmac-sha256"\nsecret = "{SECRET}"\n'
NSD_KEY = f'key:\n name: "transfer"\n algorithm: hmac-sha256\n secret: "{SECRET}"\n'
KNOT_KEY = f"key:\n  - id: transfer\n    algorithm: hmac-sha256\n    secret: {SECRET}\n"
KNOT_PEER = (
    "remote:\n  - id: ours\n    address: 10.77.0.2@53\n    key: transfer\nacl:\n  - id: ours\n   "
    " address: 10.77.0.2\n    key: transfer\n    action: [transfer, notify]\n"
)


def configured(world, text):
    file = world.folder / "dns.toml"
    file.write_text(text)
    return serve(world, "dns", "--port", 53, "--config", file)


def text_of(serial, more=""):
    return mixed().replace("2024010101 7200 900", f"{serial} 2 1") + more


def serial_at(world, port, origin, address=None):
    try:
        found = parsed(ask(world, address or world.PEER, port, question(origin, SOA_TYPE), 1))[
            "answer"
        ]
    except OSError:
        return None
    return struct.unpack("!I", found[0][3][-1][:4])[0] if found else None


def found_at(world, port, name):
    """The addresses that a secondary has for the name."""
    answer = parsed(ask(world, world.PEER, port, question(name, A)))["answer"]
    return [record[3] for record in answer]


def ours(world, name, qtype=A):
    return parsed(ask(world, world.STACK, 53, question(name, qtype)))


def transferred(world, address, port, origin):
    """All records by AXFR, without key, each once."""
    with world.connect(port, address=address) as sock:
        message = question(origin, AXFR, size=None)
        sock.sendall(struct.pack("!H", len(message)) + message)
        data, records, ends = b"", [], 0
        while ends < 2:
            while len(data) < 2 or len(data) < 2 + struct.unpack("!H", data[:2])[0]:
                piece = sock.recv(65536)
                assert piece, "the connection ended"
                data += piece
            length = struct.unpack("!H", data[:2])[0]
            answer = parsed(data[2 : 2 + length])
            assert answer["rcode"] == 0, answer
            records += answer["answer"]
            ends += sum(record[1] == SOA_TYPE for record in answer["answer"])
            data = data[2 + length :]
    return sorted(set(records), key=repr)


@test(modes=ALONE)
def nsd_and_knot_are_our_secondaries(world):
    find("nsd", "knotd")
    zone = world.folder / "zone"
    zone.write_text(text_of(1))
    primary = configured(
        world,
        KEY
        + f'[[dns.zone]]\nname = "example.test"\nfile = "{zone}"\nallow-transfer = ["key:transfer",'
        f' "{world.PEER}"]\nnotify = ["{world.PEER}:{NSD_PORT} key:transfer",'
        f' "{world.PEER}:{KNOT_PORT} key:transfer"]\n',
    )
    start_nsd(
        world,
        {"example.test": "copy"},
        NSD_KEY,
        lambda origin: (
            f" request-xfr: {world.STACK}@53 transfer\n allow-notify: {world.STACK} transfer\n"
            " provide-xfr: 0.0.0.0/0 NOKEY\n"
        ),
    )
    knot = start_knot(
        world,
        {"example.test": world.folder / "copy"},
        KNOT_KEY + KNOT_PEER,
        lambda origin: "    master: ours\n    acl: [ours]\n",
    )
    for port in (NSD_PORT, KNOT_PORT):
        until(
            lambda port=port: serial_at(world, port, "example.test") == 1,
            15,
            f"the secondary at {port} has the zone",
        )
    assert transferred(world, world.STACK, 53, "example.test") == transferred(
        world, world.PEER, NSD_PORT, "example.test"
    )
    for serial in (2, 3):
        zone.write_text(text_of(serial, f"added{serial} A 10.9.0.{serial}\n"))
        primary.signal(signal.SIGHUP)
        for port in (NSD_PORT, KNOT_PORT):
            until(
                lambda port=port: serial_at(world, port, "example.test") == serial,
                15,
                f"the secondary at {port} has serial {serial}",
            )  # noqa: B023
            # NSD's process of before answers for a moment longer.
            until(
                lambda port=port: found_at(world, port, f"added{serial}.example.test")
                == [bytes([10, 9, 0, serial])],
                5,
                f"the secondary at {port} has the added address",
            )  # noqa: B023
            assert not parsed(ask(world, world.PEER, port, question("added1.example.test", A)))[
                "answer"
            ]
    log = knot.output() + knot.errors()
    assert "IXFR, incoming" in log and "fallback to AXFR" not in log, knot.tail()


def primaries(world, files, serial):
    """NSD has nsd.test, Knot knot.test; returns functions that write a version and have it
    reloaded."""
    for origin, file in files.items():
        file.write_text(text_of(serial))
    notify = (
        lambda origin: f" notify: {world.STACK} transfer\n provide-xfr: {world.STACK} transfer\n"
    )  # noqa: E731
    nsd = start_nsd(world, {"nsd.test": files["nsd.test"]}, NSD_KEY, notify)
    both = {origin: file for origin, file in files.items() if origin != "nsd.test"}
    knot = start_knot(
        world,
        both,
        KNOT_KEY + KNOT_PEER,
        lambda origin: (
            "    notify: ours\n    acl: [ours]\n    zonefile-load: difference\n    journal-content:"
            " changes\n    zonefile-sync: -1\n"
        ),
    )
    return nsd, knot


def secondary_zone(name, port, file=None, key=" key:transfer", more=""):
    copy = f'file = "{file}"\n' if file else ""
    return f'[[dns.zone]]\nname = "{name}"\nprimary = ["10.77.0.1:{port}{key}"]\n{copy}{more}\n'


@test(modes=ALONE)
def we_are_a_secondary_of_nsd_and_knot(world):
    find("nsd", "knotd")
    files = {origin: world.folder / origin for origin in ("nsd.test", "knot.test")}
    nsd, knot = primaries(world, files, 1)
    copy = world.folder / "knot.copy"
    text = (
        KEY
        + secondary_zone("nsd.test", NSD_PORT)
        + secondary_zone("knot.test", KNOT_PORT, copy)
        + secondary_zone("other.test", KNOT_PORT)
    )
    server = configured(world, text)
    assert ours(world, "other.test", SOA_TYPE)["rcode"] == 2, "a zone that has not come"
    for serial in (1, 2, 3):
        if serial > 1:
            for origin, started in (("nsd.test", nsd), ("knot.test", knot)):
                files[origin].write_text(text_of(serial, f"added{serial} A 10.9.0.{serial}\n"))
                started.signal(signal.SIGHUP)
        for origin in files:
            until(
                lambda origin=origin: serial_at(world, 53, origin, world.STACK) == serial,
                20,
                f"we have {origin} of serial {serial}",
            )  # noqa: B023
            found = ours(world, f"added{serial}.{origin}")
            assert [record[3] for record in found["answer"]] == (
                [bytes([10, 9, 0, serial])] if serial > 1 else []
            ), found
            assert ours(world, f"added{serial - 1}.{origin}")["rcode"] == 3
            assert len(ours(world, f"chain11.{origin}")["answer"]) == 2
    # The copy serves when no primary does.
    server.signal(signal.SIGTERM)
    assert server.wait(10) == 0
    knot.signal(signal.SIGTERM)
    knot.wait(10)
    configured(world, text)
    assert (
        len(ours(world, "big.knot.test", TXT)["answer"]) == 0
        and serial_at(world, 53, "knot.test", world.STACK) == 3
    )
    assert (
        ours(world, "added3.knot.test")["answer"] and ours(world, "x.wild.knot.test", TXT)["answer"]
    )


@test(modes=ALONE)
def bind_is_our_secondary_and_our_primary(world):
    find("named")
    files = {origin: world.folder / origin for origin in ("ours.test", "bind.test")}
    for file in files.values():
        file.write_text(text_of(1))
    server = configured(
        world,
        KEY + f'[[dns.zone]]\nname = "ours.test"\nfile = "{files["ours.test"]}"\nallow-transfer ='
        f' ["key:transfer"]\nnotify = ["{world.PEER}:{BIND_PORT} key:transfer"]\n'
        + secondary_zone("bind.test", BIND_PORT),
    )
    bind = start_bind(
        world,
        f'key transfer {{ algorithm hmac-sha256; secret "{SECRET}"; }};\n'
        f'zone "ours.test" {{ type secondary; file "copy"; allow-notify {{ key transfer; }};'
        f" primaries {{ {world.STACK} port 53 key transfer; }}; }};\n"
        f'zone "bind.test" {{ type primary; file "{files["bind.test"]}"; ixfr-from-differences'
        f" yes; allow-transfer {{ key transfer; }}; also-notify {{ {world.STACK} port 53 key"
        " transfer; }; };\n",
    )
    ends = {"ours.test": (BIND_PORT, None), "bind.test": (53, world.STACK)}
    for serial in (1, 2, 3):
        if serial > 1:
            for origin, started in (("ours.test", server), ("bind.test", bind)):
                files[origin].write_text(text_of(serial, f"added{serial} A 10.9.0.{serial}\n"))
                started.signal(signal.SIGHUP)
        for origin, (port, address) in ends.items():
            until(
                lambda at=(port, origin, address): serial_at(world, *at) == serial,  # noqa: B023
                20,
                f"the secondary has {origin} of serial {serial}",
            )
            name = question(f"added{serial}.{origin}", A)
            found = parsed(ask(world, address or world.PEER, port, name))["answer"]
            wanted = [bytes([10, 9, 0, serial])] if serial > 1 else []
            assert [record[3] for record in found] == wanted, found
    for origin, (port, address) in ends.items():
        assert serial_at(world, port, origin, address) == 3
    assert transferred(world, world.PEER, BIND_PORT, "ours.test")
    log = bind.errors()
    assert "'bind.test/IN': IXFR started: TSIG transfer" in log, bind.tail()
    assert "'ours.test/IN' from" in log and "failed" not in log, bind.tail()


@test(modes=ALONE)
def a_catalog_brings_zones_and_takes_them_away(world):
    find("nsd", "knotd")
    files = {
        origin: world.folder / origin
        for origin in ("nsd.test", "knot.test", "member.test", "catalog.test")
    }
    catalog = SOA.replace("2024010101 7200 900", "{} 2 1") + 'version TXT "2"\n'
    _, knot = primaries(world, files, 1)
    files["catalog.test"].write_text(
        catalog.format(2) + "one.zones PTR knot.test.\ntwo.zones PTR member.test.\n"
    )
    knot.signal(signal.SIGHUP)
    server = configured(
        world,
        KEY
        + secondary_zone(
            "catalog.test", KNOT_PORT, world.folder / "kept" / "catalog.zone", more="catalog = true"
        ),
    )
    (world.folder / "kept").mkdir()
    for origin in ("knot.test", "member.test"):
        until(
            lambda origin=origin: serial_at(world, 53, origin, world.STACK) == 1,
            20,
            f"we have {origin}",
        )
    files["catalog.test"].write_text(catalog.format(3) + "two.zones PTR member.test.\n")
    knot.signal(signal.SIGHUP)
    until(lambda: ours(world, "knot.test", SOA_TYPE)["rcode"] == 5, 20, "the zone is gone")
    assert serial_at(world, 53, "member.test", world.STACK) == 1
    assert server.is_running() and (world.folder / "kept" / "member.test.zone").exists()


def primary_that_stops(world, port, serial, records, whole):
    """A primary that sends `records` of a zone and, unless `whole`, ends there."""
    with world.peer_ns.inside():
        listener = socket.create_server((world.PEER, port))

    def answer(message):
        number, qtype = message[:2], (
            struct.unpack("!H", message[-4:-2])[0] if message[8:10] == b"\0\0" else 251
        )
        end = 12 + len(wire("half.test")) + 4
        soa = (
            b"\xc0\x0c\0\6\0\1\0\0\0\x3c"
            + struct.pack("!H", 2 + 2 + 20)
            + b"\xc0\x0c\xc0\x0c"
            + struct.pack("!IIIII", serial, 1, 1, 3600, 60)
        )
        body, count = soa, 1
        if qtype != SOA_TYPE:
            for index in range(records):
                name = f"r{index}".encode()
                body += (
                    bytes([len(name)])
                    + name
                    + b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x0a\0\0"
                    + bytes([serial])
                )
                count += 1
            if whole:
                body, count = body + soa, count + 1
        return number + struct.pack("!HHHHH", 0x8400, 1, count, 0, 0) + message[12:end] + body

    def run():
        while True:
            sock, _ = listener.accept()
            with sock:
                for _ in range(2):
                    head = sock.recv(2, socket.MSG_WAITALL)
                    if len(head) < 2:
                        break
                    reply = answer(sock.recv(struct.unpack("!H", head)[0], socket.MSG_WAITALL))
                    sock.sendall(struct.pack("!H", len(reply)) + reply)
                time.sleep(0.05)

    threading.Thread(target=run, daemon=True).start()


@test(modes=ALONE)
def a_transfer_that_ends_half_way_leaves_the_old_zone(world):
    primary_that_stops(world, 5400, 1, 50, True)
    primary_that_stops(world, 5401, 2, 20, False)
    zone = f'[[dns.zone]]\nname = "half.test"\nprimary = ["{world.PEER}:5400"]\n'
    server = configured(world, zone)
    until(lambda: serial_at(world, 53, "half.test", world.STACK) == 1, 10, "the zone has come")
    (world.folder / "dns.toml").write_text(zone.replace("5400", "5401"))
    server.signal(signal.SIGHUP)
    until(lambda: "no transfer from 10.77.0.1:5401" in server.errors(), 10, "the transfer fails")
    assert serial_at(world, 53, "half.test", world.STACK) == 1
    assert ours(world, "r49.half.test")["answer"][0][3] == bytes([10, 0, 0, 1])


@test(modes=ALONE)
def a_reload_loses_no_query_and_an_error_keeps_the_old_zone(world):
    zone = world.folder / "zone"
    zone.write_text(text_of(1))
    server = configured(world, f'[[dns.zone]]\nname = "example.test"\nfile = "{zone}"\n')
    with world.peer_ns.inside():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sock:
        sock.settimeout(2)
        sock.connect((world.STACK, 53))
        serials = []
        for number in range(3000):
            if number % 500 == 250:
                zone.write_text(
                    text_of(2 + number // 500) + ("bad A 1.2.3\n" if number // 500 == 4 else "")
                )
                server.signal(signal.SIGHUP)
            sock.send(question("example.test", SOA_TYPE, number))
            answer = parsed(sock.recv(65536))
            assert answer["id"] == number
            serials.append(struct.unpack("!I", answer["answer"][0][3][-1][:4])[0])
            time.sleep(0.0005)
    until(
        lambda: serial_at(world, 53, "example.test", world.STACK) == 7,
        5,
        "the last version is in force",
    )
    assert serials == sorted(serials) and 6 not in serials and len(set(serials)) >= 4, sorted(
        set(serials)
    )
    lines = [f"{zone}:{text_of(6).count(chr(10)) + more}:" for more in (1, 2)]
    assert (
        any(line in server.errors() for line in lines) and "it stays as it is" in server.errors()
    ), server.tail()


@test(modes=ALONE)
def transfers_that_are_not_allowed_and_bad_configurations_are_refused(world):
    zone = world.folder / "zone"
    zone.write_text(text_of(1))
    configured(
        world,
        KEY
        + f'[[dns.zone]]\nname = "example.test"\nfile = "{zone}"\nallow-transfer = ["key:transfer",'
        ' "10.77.9.0/24"]\n',
    )
    with world.connect(53, address=world.STACK) as sock:
        for name, code in (("example.test", 5), ("www.example.test", 9), ("elsewhere.test", 9)):
            message = question(name, AXFR, size=None)
            sock.sendall(struct.pack("!H", len(message)) + message)
            length = struct.unpack("!H", sock.recv(2, socket.MSG_WAITALL))[0]
            assert parsed(sock.recv(length, socket.MSG_WAITALL))["rcode"] == code, name
    notify = question("example.test", SOA_TYPE, flags=0x2400, size=None)
    assert ask(world, world.STACK, 53, notify)[3] & 15 == 5, "a NOTIFY from anybody"
    for text, said in (
        ("[dns]\nnothing = 1\n", "unknown field"),
        ('[[dns.zone]]\nname = "a.test"\n', "it needs a file, or a primary"),
        ('[[dns.zone]]\nname = "a.test"\nprimary = ["10.0.0.1 key:gone"]\n', "there is no key"),
        (
            '[[dns.zone]]\nname = "a.test"\nfile = "x"\nallow-transfer = ["10.0.0.0/33"]\n',
            "is neither ADDRESS",
        ),
        ('[dns.key.k]\nalgorithm = "md5"\nsecret = "eA=="\n', "one of hmac-sha1"),
        ("[dns]\n", "there is no zone"),
    ):
        file = world.folder / "bad.toml"
        file.write_text(text)
        words = [
            str(world.slipstack),
            "serve",
            "dns",
            "--config",
            str(file),
            "--run-dir",
            str(world.run_dir),
            *world.device_options(),
        ]
        done = world.process(world.stack_ns.prefix() + words)
        assert done.wait(10) == 1 and said in done.errors(), done.tail()
