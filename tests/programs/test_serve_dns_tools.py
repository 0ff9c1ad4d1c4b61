"""`slipstack serve dns` with the tools of others: a zone that kzonesign has signed, checked by
delv; dnsperf and resperf."""

import re
import shutil
import subprocess

from harness import Skip, test
from test_serve import ALONE, serve

ZONE = """$ORIGIN example.test.
$TTL 300
@ SOA ns hostmaster 1 3600 900 604800 300
@ NS ns
ns A 192.0.2.1
www A 192.0.2.2
mail AAAA 2001:db8::1
*.wild TXT "any"
sub NS ns.sub
ns.sub A 192.0.2.9
"""
SIGNING = """database:
    storage: {folder}/keys
policy:
  - id: signed
    algorithm: ecdsap256sha256
    nsec3: {nsec3}
zone:
  - domain: example.test
    storage: {folder}
    file: example.test.zone
    dnssec-signing: on
    dnssec-policy: signed
"""


def needs(*tools):
    for tool in tools:
        if shutil.which(tool, path="/usr/sbin:/usr/bin") is None:
            raise Skip(f"{tool} is not installed")


def signed(world, nsec3):
    """The path of the zone, signed, and of a file with its key for delv."""
    folder = world.folder / f"nsec3-{nsec3}"
    for name in ("keys", "out"):
        (folder / name).mkdir(parents=True)
    (folder / "example.test.zone").write_text(ZONE)
    (folder / "knot.conf").write_text(SIGNING.format(folder=folder, nsec3=nsec3))
    subprocess.run(
        ["kzonesign", "-c", folder / "knot.conf", "-o", folder / "out", "example.test"],
        check=True,
        capture_output=True,
    )
    zone = folder / "out" / "example.test.zone"
    key = re.search(r"DNSKEY\s+257 3 13 (\S+)", zone.read_text())[1]
    (folder / "anchor").write_text(
        f'trust-anchors {{ example.test. static-key 257 3 13 "{key}"; }};\n'
    )
    return zone, folder / "anchor"


@test(modes=ALONE)
def answers_from_a_zone_that_kzonesign_has_signed_are_valid(world):
    needs("kzonesign", "delv")
    for nsec3, port in (("on", 53), ("off", 54)):
        zone, anchor = signed(world, nsec3)
        server = serve(world, "dns", "--zone", f"example.test={zone}", "--port", port)
        wanted = {
            ("www.example.test", "A"): ("; fully validated", "192.0.2.2"),
            ("one.wild.example.test", "TXT"): ("; fully validated", '"any"'),
            ("www.example.test", "MX"): ("; negative response, fully validated", ""),
            ("none.example.test", "A"): ("; negative response, fully validated", "NXDOMAIN"),
        }
        for (name, kind), (verdict, text) in wanted.items():
            words = [
                "delv",
                f"@{world.STACK}",
                "-p",
                port,
                "-a",
                anchor,
                "+root=example.test",
                name,
                kind,
            ]
            asked = world.peer(*words)
            asked.wait(20)
            said = asked.output() + asked.errors()
            assert verdict in said and text in said, f"{name} {kind}, NSEC3 {nsec3}:\n{said}"
        server.stop()


@test(modes=ALONE)
def dnsperf_and_resperf_get_an_answer_to_each_query(world):
    needs("dnsperf", "resperf")
    zone = world.folder / "zone"
    zone.write_text(ZONE)
    serve(world, "dns", "--zone", f"example.test={zone}", "--port", 53)
    queries = world.folder / "queries"
    queries.write_text(
        "".join(
            f"{name}.example.test {kind}\n"
            for name, kind in (("www", "A"), ("mail", "AAAA"), ("none", "A"), ("x.wild", "TXT"))
        )
    )
    text = world.peer(
        "dnsperf", "-s", world.STACK, "-d", queries, "-n", 500, "-c", 4, "-q", 32
    ).finish(30)
    assert (
        "Queries completed:    2000 (100.00%)" in text and "Queries lost:         0" in text
    ), text
    codes = dict(re.findall(r"(NOERROR|NXDOMAIN) (\d+)", text))
    assert codes == {"NOERROR": "1500", "NXDOMAIN": "500"}, text
    tcp = world.peer(
        "dnsperf", "-m", "tcp", "-s", world.STACK, "-d", queries, "-n", 100, "-c", 4, "-q", 32
    ).finish(30)
    assert "Queries completed:    400 (100.00%)" in tcp, tcp
    plot = world.folder / "plot"
    ramp = world.peer(
        "resperf",
        "-s",
        world.STACK,
        "-d",
        queries,
        "-R",
        "-m",
        2000,
        "-r",
        1,
        "-t",
        5,
        "-q",
        2000,
        "-P",
        plot,
    ).finish(30)
    assert re.search(r"Lost at that point:\s+0.00%", ramp), ramp
    assert plot.exists()
