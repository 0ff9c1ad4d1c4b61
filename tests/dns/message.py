"""DNS messages: written, and read with names written out, so that compression makes no
difference."""

import struct

OPT = 41
# Bytes before the first name in a type's data, and how many names follow.
NAMES = {
    2: (0, 1),
    5: (0, 1),
    6: (0, 2),
    7: (0, 1),
    8: (0, 1),
    9: (0, 1),
    12: (0, 1),
    14: (0, 2),
    15: (2, 1),
    17: (0, 2),
    33: (6, 1),
    39: (0, 1),
}
TYPES = {
    "A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "PTR": 12, "MX": 15, "TXT": 16, "AAAA": 28, "SRV": 33,
    "DNAME": 39, "DS": 43, "RRSIG": 46, "NSEC": 47, "DNSKEY": 48, "NSEC3": 50, "NSEC3PARAM": 51,
    "TLSA": 52, "HTTPS": 65, "IXFR": 251, "AXFR": 252, "ANY": 255, "CAA": 257, "TYPE731": 731,
}  # fmt: skip


def wire(name):
    """A name given as text without unusual bytes, or as a list of labels."""
    labels = (
        [label.encode() for label in name.split(".") if label] if isinstance(name, str) else name
    )
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def question(
    name, qtype, number=1, size=1232, *, do=False, version=0, options=b"", qclass=1, flags=0x0100
):
    """A query; `size` None: without EDNS."""
    opt = (
        b""
        if size is None
        else b"\0"
        + struct.pack("!HHBBHH", OPT, size, 0, version, 0x8000 if do else 0, len(options))
        + options
    )
    return (
        struct.pack("!HHHHHH", number, flags, 1, 0, 0, int(bool(opt)))
        + wire(name)
        + struct.pack("!HH", qtype, qclass)
        + opt
    )


def read_name(data, at):
    labels, end = [], None
    while length := data[at]:
        if length >= 0xC0:
            end = end or at + 2
            at = (length & 0x3F) << 8 | data[at + 1]
            continue
        labels.append(data[at + 1 : at + 1 + length].lower())
        at += 1 + length
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0", end or at + 1


def show(name):
    """A name in wire format as people write it."""
    text, at = "", 0
    while length := name[at]:
        text += (
            "".join(
                chr(byte) if 0x21 <= byte < 0x7F and byte != 0x2E else f"\\{byte:03}"
                for byte in name[at + 1 : at + 1 + length]
            )
            + "."
        )
        at += 1 + length
    return text or "."


def rdata(data, at, length, rtype):
    if rtype not in NAMES:
        return data[at : at + length]
    (skip, names), end = NAMES[rtype], at + length
    parts, at = [data[at : at + skip]], at + skip
    for _ in range(names):
        name, at = read_name(data, at)
        parts.append(name)
    return (*parts, data[at:end])


def options_of(data):
    found, at = {}, 0
    while at < len(data):
        code, length = struct.unpack("!HH", data[at : at + 4])
        found[code] = data[at + 4 : at + 4 + length]
        at += 4 + length
    return found


def parsed(data):
    number, flags, questions, *counts = struct.unpack("!HHHHHH", data[:12])
    at = 12
    for _ in range(questions):
        at = read_name(data, at)[1] + 4
    sections, edns = [], None
    for count in counts:
        records = []
        for _ in range(count):
            name, at = read_name(data, at)
            rtype, size, ttl, length = struct.unpack("!HHIH", data[at : at + 10])
            at += 10
            if rtype == OPT:
                edns = {
                    "size": size,
                    "high": ttl >> 24,
                    "version": ttl >> 16 & 255,
                    "flags": ttl & 0xFFFF,
                    "options": options_of(data[at : at + length]),
                }
            else:
                records.append((name, rtype, ttl, rdata(data, at, length, rtype)))
            at += length
        sections.append(sorted(records, key=repr))
    assert at == len(data), "bytes after the last record"
    high = edns["high"] << 4 if edns else 0
    return {
        "id": number, "rcode": flags & 15 | high, "aa": bool(flags & 0x400),
        "tc": bool(flags & 0x200), "flags": flags & 0x79F0, "questions": questions,
        "question": data[12:at] if not any(counts) else None, "answer": sections[0],
        "authority": sections[1], "additional": sections[2], "edns": edns,
        "length": len(data),
    }  # fmt: skip
