"""Zones that servers are compared on: small ones with every kind of name, large ones, signed
ones."""

import random
import shutil
import subprocess

SOA = (
    "$TTL 3600\n@ IN SOA ns1 host 2024010101 7200 900 604800 300\n@ NS ns1\n@ NS"
    " ns.elsewhere.test.\nns1 A 10.0.0.1\nns1 AAAA fd00::1\n"
)
MIXED = """@ MX 10 mail
@ MX 20 mail.sub
@ TXT "hello" "world"
@ CAA 0 issue "ca.test"
mail A 10.0.0.2
www CNAME web
web 60 A 10.0.0.3
web 60 A 10.0.0.4
web HTTPS 1 . alpn=h2
_443._tcp.web TLSA 3 1 1 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
loop1 CNAME loop2
loop2 CNAME loop1
far CNAME host.elsewhere.test.
down CNAME host.sub
dangling CNAME nothing
towild CNAME some.wild
*.wild TXT "star"
*.wild MX 5 mail
here.wild A 10.0.0.5
*.aliases CNAME web
*.nowhere CNAME nothing
*.deep.star A 10.1.1.1
sub.*.odd A 10.1.1.2
a.b.c A 10.0.0.6
sub NS ns.sub
sub NS ns1
ns.sub A 10.0.0.7
mail.sub A 10.0.0.17
secure NS ns.secure
secure DS 12345 13 2 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
ns.secure A 10.0.0.18
insecure.below NS ns1
plain.empty.deep NS ns.elsewhere.test.
_sip._tcp SRV 0 5 5060 mail
_sip._tcp SRV 0 5 5061 ns.sub
alias CNAME x.wild
old DNAME new
x.new A 10.0.0.8
y.new CNAME web
long DNAME LONG
redirect DNAME redirect2
redirect2 DNAME new
strange TYPE731 \\# 3 abcdef
odd\\.dot A 10.0.0.9
odd\\000zero A 10.0.0.10
\\255\\200 TXT "\\000\\255"
UPPER A 10.0.0.11
ptr PTR Mixed.Case
"""
# Names of the mixed zone, and near to it.
NAMES = [
    "", "ns1", "mail", "www", "web", "WeB", "loop1", "far", "dangling", "wild",
    "x.wild", "a.b.wild", "here.wild", "below.here.wild", "c", "b.c", "a.b.c", "x.b.c",
    "sub", "ns.sub", "deep.down.sub",
]  # fmt: skip
LONG = ".".join(["l" * 60] * 3)


def mixed():
    chain = (
        "".join(f"chain{number} CNAME chain{number + 1}\n" for number in range(12))
        + "chain12 A 10.0.0.12\n"
    )
    big = "".join(f'big TXT "{number:03} {"x" * 100}"\n' for number in range(30))
    wide = "".join(f"wide A 10.3.{number // 200}.{number % 200}\n" for number in range(300))
    return SOA + MIXED.replace("LONG", LONG) + chain + big + wide


def many(count):
    lines = [SOA]
    for number in range(count):
        lines.append(f"h{number} A 10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}\n")
        if number % 3 == 0:
            lines.append(f"h{number} AAAA fd00::{number >> 16:x}:{number & 65535:x}\n")
        if number % 50 == 0:
            lines.append(f"*.h{number} TXT star{number}\n")
    return "".join(lines)


def delegations(count):
    """Like the root: little but cuts."""
    lines = [SOA]
    for number in range(count):
        lines.append(
            f"d{number} NS ns.d{number}\nd{number} NS ns.d{(number + 1) % count}\nns.d{number} A"
            f" 10.4.{number >> 8 & 255}.{number & 255}\n"
        )
        if number % 2:
            lines.append(f"ns.d{number} AAAA fd01::{number:x}\n")
        if number % 3 == 0:
            lines.append(f"d{number} DS {number % 65536} 13 2 {number:064x}\n")
    return "".join(lines)


def reverse(count):
    return SOA + "".join(
        f"{number & 255}.{number >> 8}.0 PTR h{number}.many.test.\n" for number in range(count)
    )


def signed(folder, origin, text, *options):
    """The file, signed by ldns-signzone."""
    plain = folder / f"{origin}.plain"
    plain.write_text(text)
    tool = lambda *words: subprocess.run(
        [str(word) for word in words], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()  # noqa: E731
    key = tool("ldns-keygen", "-r", "/dev/urandom", "-a", "ECDSAP256SHA256", origin)
    tool("ldns-signzone", "-o", origin, "-f", folder / f"{origin}.zone", *options, plain, key)
    return folder / f"{origin}.zone"


def signed_by_bind(folder, origin, text, *options):
    """The file, signed by dnssec-signzone."""
    plain = folder / f"{origin}.plain"
    plain.write_text(text)
    tool = lambda *words: subprocess.run(
        [str(word) for word in words], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()  # noqa: E731
    tool("dnssec-keygen", "-a", "ED25519", "-f", "KSK", "-n", "ZONE", origin)
    tool(
        "dnssec-signzone",
        "-S",
        "-z",
        "-o",
        origin,
        "-f",
        folder / f"{origin}.zone",
        *options,
        plain,
    )
    return folder / f"{origin}.zone"


def write(folder, names, seed):
    """Zone files by origin; `names`: how many the large ones have."""
    texts = {
        "example.test": mixed(),
        "child.example.test": SOA + "www A 10.9.9.9\n",
        "many.test": many(names),
        "deleg.test": delegations(names // 4),
        "10.in-addr.arpa": reverse(min(names, 50000)),
    }
    texts["example.test"] += "child NS ns1.child\nns1.child A 10.0.0.1\n"
    files = {}
    for origin, text in texts.items():
        files[origin] = folder / f"{origin}.zone"
        files[origin].write_text(text)
    if shutil.which("ldns-signzone"):
        small = mixed() + delegations(20).removeprefix(SOA)
        salt = random.Random(seed).randbytes(4).hex()
        files["nsec.test"] = signed(folder, "nsec.test", small)
        files["nsec3.test"] = signed(folder, "nsec3.test", small, "-n", "-t", "3", "-s", salt)
        files["optout.test"] = signed(folder, "optout.test", small, "-n", "-p", "-t", "0")
    if shutil.which("dnssec-signzone"):
        # Names with an asterisk inside and odd bytes are written its way.
        files["bind.test"] = signed_by_bind(folder, "bind.test", mixed(), "-3", "aabb", "-H", "1")
    return files
