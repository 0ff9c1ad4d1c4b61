"""Differences that are right as they are, each with its reason."""

import re

ANY, RRSIG, IXFR, CHAOS = 255, 46, 251, 3
COOKIE, EXTENDED_ERROR = 10, 15
META = (249, 250, 253, 254)
ALIASES_KNOT = 5
HASH = re.compile(rb"^[0-9a-v]{32}$", re.I)


def explanation(question, server, key, ours, theirs):
    """The reason why our answer differs from the server's in this key, or None."""
    for servers, keys, applies, why in RULES:
        if server in servers and (key in keys or keys == "all") and applies(question, ours, theirs):
            return why
    return None


def is_strange_class(question):
    return question.more.get("qclass", 1) not in (1, CHAOS)


def aliases(answer):
    return sum(rtype == 5 for _, rtype, *_ in answer["answer"])


def fits(question, ours, theirs):
    return (
        theirs["tc"]
        and not ours["tc"]
        and ours["length"] <= max(512, min(question.size or 0, 1232))
    )


def is_targets(question, ours, theirs):
    return question.qtype in (2, 15, 33) and ours["answer"] and not theirs["additional"]


def has_cookie(question, ours, theirs):
    return (
        ours["edns"]
        and theirs["edns"]
        and COOKIE in ours["edns"]["options"]
        and COOKIE not in theirs["edns"]["options"]
    )


def is_below_hash(question, ours, theirs):
    return any(HASH.match(label) for label in question.labels)


def is_part(question, ours, theirs):
    return (question.size or 0) <= 1232 and all(
        record in ours["additional"] for record in theirs["additional"] if record[1] != RRSIG
    )


BOTH = ("nsd", "knot")
RULES = [
    (
        BOTH,
        ("answer", "additional", "tc"),
        lambda question, ours, theirs: question.qtype == ANY,
        "ANY gets one set (RFC 8482 4.1)",
    ),
    (
        BOTH,
        "all",
        lambda question, ours, theirs: is_strange_class(question),
        "classes other than IN and CHAOS are REFUSED, ANY is not authoritative (RFC 1034 3.7.1)",
    ),
    (
        BOTH,
        ("edns",),
        lambda question, ours, theirs: question.more.get("qclass") == CHAOS,
        "no extended error says that CHAOS is refused",
    ),
    (
        ("nsd",),
        ("edns", "flags"),
        lambda question, ours, theirs: question.more.get("version"),
        "NSD clears DO and keeps CD in BADVERS (RFC 3225 3, RFC 4035 3.1.6)",
    ),
    (
        ("nsd",),
        ("additional",),
        is_targets,
        "NSD leaves out the addresses of targets in minimal responses",
    ),
    (
        BOTH,
        ("rcode", "authority", "edns"),
        lambda question, ours, theirs: ours["rcode"] == 6,
        "a name that DNAME makes too long is YXDOMAIN (RFC 6672 2.2), without extended error",
    ),
    (("knot",), ("edns", "tc", "additional"), has_cookie, "Knot has no cookies without a module"),
    (
        ("knot",),
        ("answer", "authority", "rcode", "tc", "additional"),
        lambda question, ours, theirs: aliases(theirs) >= ALIASES_KNOT,
        "Knot follows fewer aliases",
    ),
    (
        ("knot",),
        "all",
        lambda question, ours, theirs: question.qtype == RRSIG,
        "Knot leaves out signatures of NSEC, and follows no alias for RRSIG",
    ),
    (
        ("knot",),
        "all",
        lambda question, ours, theirs: question.qtype == 47,
        "Knot follows no alias for NSEC where there is none",
    ),
    (
        ("knot",),
        ("authority", "tc"),
        lambda question, ours, theirs: b"odd" in [label.lower() for label in question.labels],
        "Knot leaves out the proof that an empty wildcard has no data (RFC 4035 3.1.3.4)",
    ),
    (
        ("knot",),
        ("tc",),
        lambda question, ours, theirs: b"long" in [label.lower() for label in question.labels],
        "Knot leaves out an SOA record that has no room, without TC",
    ),
    (
        ("knot",),
        ("authority", "tc"),
        lambda question, ours, theirs: question.labels[0] == b"*",
        "Knot leaves out the closest encloser of a name that begins with an asterisk",
    ),
    (
        ("nsd",),
        ("authority", "tc"),
        lambda question, ours, theirs: question.labels[0] == b"*",
        "NSD proves the wildcard twice if it is asked for by its name",
    ),
    (
        BOTH,
        ("rcode", "edns", "tc"),
        lambda question, ours, theirs: question.qtype == IXFR,
        "a transfer that is not allowed is REFUSED",
    ),
    (
        ("knot",),
        "all",
        lambda question, ours, theirs: question.qtype == 0,
        "Knot implements no type 0; here it is a type that no name has",
    ),
    (
        ("nsd",),
        "all",
        lambda question, ours, theirs: question.qtype == 50,
        "NSD does not follow an alias for NSEC3",
    ),
    (
        ("nsd",),
        ("authority", "tc"),
        is_below_hash,
        "NSD takes the owner of an NSEC3 record for the closest encloser (RFC 5155 7.2.8 does not)",
    ),
    (("nsd",), ("additional",), is_part, "NSD puts signatures before further addresses"),
    (BOTH, ("tc",), fits, "ours has room for it"),
]
