"""Requests that are malformed, odd, or at a limit: what the web server answers, and nginx where
that differs.

An answer is the status of each response and what becomes of the connection: `stays`, `ends`. A
difference to nginx has its reason beside it; most are of one kind: a request that two servers could
read differently is refused."""

HOST = b"Host: x\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def get(*fields, line=b"GET /hello HTTP/1.1\r\n", host=HOST, body=b""):
    return line + host + b"".join(field + b"\r\n" for field in fields) + b"\r\n" + body


def row(request, ours, nginx=None, because=None):
    """`nginx`: its answer if it differs from ours; `because`: the reason."""
    assert (nginx is None) == (because is None)
    return request, ours, nginx or ours


REFUSED = "400 ends"
SERVED = "200 stays"
LAST = "200 ends"
NEXT = b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n"

# The reason why our answer differs.
OLD = "nginx speaks HTTP/0.9, whose answers have no status"
VERSION = "RFC 9110, section 15.6.6: a version that is not served is 505"
NO_VERSION = "RFC 9112, section 2.3: a version is a digit, a point and a digit"
BLANKS = (
    "RFC 9112, section 3: one blank between the parts of the line, and a recipient may refuse more"
)
FRAMED = "what is wrong is the path, not where the request ends"
METHOD = (
    "RFC 9110, section 9.1: 501 for a method that is not known, 405 for one that is not allowed"
)
TARGET = "a URI is ASCII"
FIELDS = (
    "RFC 9110, section 5.1, 5.5: nginx drops a field with such a name or value, and others read it"
)
STATUS_431 = "the status for it"
LINE_FEED = "RFC 9112, section 2.2: a bare line feed is a request's end for some and not for others"
LINGERS = "nginx reads on for a while before it ends the connection"
BLANK_IN_VALUE = "RFC 9110, section 5.5: blanks and tabs around a value are no part of it"
EARLY = "the file does not depend on the body: ours is sent before the body has come"
EXPECTED = "the file does not depend on the body: who waits with it need not send it"
CONTROL = "RFC 9110, section 5.5: a control character is no part of a value"
STATUS_501 = "the status for a coding that is not known"
RANGES = "RFC 9110, section 14.2: a range that cannot be understood is ignored"
ONE_RANGE = "RFC 9110, section 14.2: a server may ignore the field"

ROWS = {
    # The request line.
    "plain": row(get(), SERVED),
    "1.0": row(get(line=b"GET /hello HTTP/1.0\r\n", host=b""), LAST),
    "1.0 that stays": row(get(b"Connection: keep-alive", line=b"GET /hello HTTP/1.0\r\n"), SERVED),
    "0.9": row(b"GET /hello\r\n\r\n", REFUSED, "ends", OLD),
    "0.9 by number": row(get(line=b"GET /hello HTTP/0.9\r\n"), "505 ends", REFUSED, VERSION),
    "version 1.2": row(get(line=b"GET /hello HTTP/1.2\r\n"), "505 ends", SERVED, VERSION),
    "version 2.0": row(get(line=b"GET /hello HTTP/2.0\r\n"), "505 ends"),
    "version 3": row(get(line=b"GET /hello HTTP/3\r\n"), REFUSED, "505 ends", NO_VERSION),
    "version 10.1": row(get(line=b"GET /hello HTTP/10.1\r\n"), REFUSED, "505 ends", NO_VERSION),
    "version of two digits": row(
        get(line=b"GET /hello HTTP/1.11\r\n"), REFUSED, SERVED, NO_VERSION
    ),
    "no version number": row(get(line=b"GET /hello HTTP/x\r\n"), REFUSED),
    "lower-case version": row(get(line=b"GET /hello http/1.1\r\n"), REFUSED),
    "another protocol": row(get(line=b"GET /hello ICAP/1.0\r\n"), REFUSED),
    "two blanks": row(get(line=b"GET  /hello HTTP/1.1\r\n"), REFUSED, SERVED, BLANKS),
    "two blanks before the version": row(
        get(line=b"GET /hello  HTTP/1.1\r\n"), REFUSED, SERVED, BLANKS
    ),
    "tab for a blank": row(get(line=b"GET\t/hello HTTP/1.1\r\n"), REFUSED),
    "blank first": row(get(line=b" GET /hello HTTP/1.1\r\n"), REFUSED),
    "blank at the end": row(get(line=b"GET /hello HTTP/1.1 \r\n"), REFUSED, SERVED, BLANKS),
    "blank in the target": row(get(line=b"GET /hel lo HTTP/1.1\r\n"), REFUSED),
    "no target": row(get(line=b"GET HTTP/1.1\r\n"), REFUSED),
    "target without a slash": row(
        get(line=b"GET hello HTTP/1.1\r\n"), "400 stays", REFUSED, FRAMED
    ),
    "absolute form": row(get(line=b"GET http://x/hello HTTP/1.1\r\n"), SERVED),
    "absolute form without a host": row(
        get(line=b"GET http:///hello HTTP/1.1\r\n"), "400 stays", REFUSED, FRAMED
    ),
    "authority form": row(get(line=b"CONNECT x:80 HTTP/1.1\r\n"), "405 ends", REFUSED, METHOD),
    "star": row(get(line=b"OPTIONS * HTTP/1.1\r\n"), "405 stays", REFUSED, METHOD),
    "fragment": row(get(line=b"GET /hello#part HTTP/1.1\r\n"), SERVED),
    "query": row(get(line=b"GET /hello?a=b&c HTTP/1.1\r\n"), SERVED),
    "control in the target": row(get(line=b"GET /hel\x01lo HTTP/1.1\r\n"), REFUSED),
    "eighth bit in the target": row(
        get(line=b"GET /hel\xfflo HTTP/1.1\r\n"), REFUSED, "404 stays", TARGET
    ),
    "bad escape": row(get(line=b"GET /%zz HTTP/1.1\r\n"), "400 stays", REFUSED, FRAMED),
    "half an escape": row(get(line=b"GET /hello%2 HTTP/1.1\r\n"), "400 stays", REFUSED, FRAMED),
    "escaped zero": row(get(line=b"GET /hello%00 HTTP/1.1\r\n"), "400 stays", REFUSED, FRAMED),
    "way out": row(get(line=b"GET /../etc/passwd HTTP/1.1\r\n"), "400 stays", REFUSED, FRAMED),
    "escaped way out": row(
        get(line=b"GET /%2e%2e/etc/passwd HTTP/1.1\r\n"), "400 stays", REFUSED, FRAMED
    ),
    "long line": row(get(line=b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n"), "414 ends"),
    "garbage": row(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", REFUSED),
    "preface of HTTP/2": row(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 ends", REFUSED, VERSION),
    # Methods.
    "unknown method": row(get(line=b"BREW /hello HTTP/1.1\r\n"), "501 stays", "405 stays", METHOD),
    "lower-case method": row(get(line=b"get /hello HTTP/1.1\r\n"), "501 stays", REFUSED, METHOD),
    "method of signs": row(get(line=b"G@T /hello HTTP/1.1\r\n"), REFUSED),
    "post": row(get(b"Content-Length: 0", line=b"POST /hello HTTP/1.1\r\n"), "405 stays"),
    "trace": row(get(line=b"TRACE /hello HTTP/1.1\r\n"), "405 ends"),
    "head": row(get(line=b"HEAD /hello HTTP/1.1\r\n"), SERVED),
    # Fields.
    "no host": row(get(host=b""), REFUSED),
    "empty host": row(get(host=b"Host:\r\n"), REFUSED),
    "two hosts": row(get(HOST[:-2]), REFUSED),
    "host with a slash": row(get(host=b"Host: a/b\r\n"), REFUSED),
    "host with a blank": row(get(host=b"Host: a b\r\n"), REFUSED),
    "blank before the colon": row(get(host=b"Host : x\r\n"), REFUSED),
    "folded line": row(get(b"X: a", b" b"), REFUSED),
    "folded first line": row(get(host=b" Host: x\r\n"), REFUSED),
    "no name": row(get(b": a"), REFUSED),
    "no colon": row(get(b"nonsense"), REFUSED, SERVED, FIELDS),
    "blank in a name": row(get(b"X Y: a"), REFUSED),
    "sign in a name": row(get(b"X@Y: a"), REFUSED, SERVED, FIELDS),
    "underline in a name": row(get(b"X_Y: a"), SERVED),
    "zero in a value": row(get(b"X: a\0b"), REFUSED),
    "control in a value": row(get(b"X: a\x01b"), REFUSED, SERVED, FIELDS),
    "eighth bit in a value": row(get(b"X: \xe4\xf6"), SERVED),
    "carriage return in a value": row(get(b"X: a\rb"), REFUSED),
    "empty value": row(get(b"X:"), SERVED),
    "long head": row(get(*[b"X-Y: " + b"a" * 4000] * 10), "431 ends", REFUSED, STATUS_431),
    "many fields": row(get(*[b"X-Y: a"] * 200), "431 ends", SERVED, STATUS_431),
    # Ends of lines.
    "bare line feeds": row(b"GET /hello HTTP/1.1\nHost: x\n\n", REFUSED, SERVED, LINE_FEED),
    "one bare line feed": row(
        b"GET /hello HTTP/1.1\r\nHost: x\nX: y\r\n\r\n", REFUSED, SERVED, LINE_FEED
    ),
    "bare carriage returns": row(b"GET /hello HTTP/1.1\rHost: x\r\r", REFUSED),
    "empty lines first": row(b"\r\n\r\n" + get(), SERVED),
    # Where the body ends.
    "both lengths": row(get(b"Content-Length: 3", CHUNKED[:-2], body=b"0\r\n\r\n"), REFUSED),
    "two lengths that are one": row(
        get(b"Content-Length: 3", b"Content-Length: 3", body=b"abc"), REFUSED
    ),
    "two lengths": row(get(b"Content-Length: 3", b"Content-Length: 4", body=b"abcd"), REFUSED),
    "list of lengths": row(get(b"Content-Length: 3, 3", body=b"abc"), REFUSED),
    "signed length": row(get(b"Content-Length: +3", body=b"abc"), REFUSED),
    "negative length": row(get(b"Content-Length: -3"), REFUSED),
    "length in hexadecimal": row(get(b"Content-Length: 0x3", body=b"abc"), REFUSED),
    "length with a blank": row(get(b"Content-Length: 1 3", body=b"abc"), REFUSED),
    "empty length": row(get(b"Content-Length:"), REFUSED),
    "length beyond all numbers": row(get(b"Content-Length: " + b"9" * 30), REFUSED),
    "long body": row(get(b"Content-Length: 20000000"), "413 ends", "413 stays", LINGERS),
    "chunked in 1.0": row(
        get(CHUNKED[:-2], line=b"GET /hello HTTP/1.0\r\n", body=b"0\r\n\r\n"), REFUSED
    ),
    "unknown coding": row(get(b"Transfer-Encoding: gzip"), "501 ends"),
    "chunked and another coding": row(
        get(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"), "501 ends"
    ),
    "chunked twice": row(get(CHUNKED[:-2], CHUNKED[:-2], body=b"0\r\n\r\n"), REFUSED),
    "chunked with a tab": row(
        get(b"Transfer-Encoding: \tchunked", body=b"0\r\n\r\n"), SERVED, "501 ends", BLANK_IN_VALUE
    ),
    "chunked with a sign": row(get(b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n"), "501 ends"),
    "chunk of nonsense": row(
        get(CHUNKED[:-2], body=b"xyz\r\n\r\n"), "200 400 ends", REFUSED, EARLY
    ),
    "signed chunk": row(
        get(CHUNKED[:-2], body=b"+3\r\nabc\r\n0\r\n\r\n"), "200 400 ends", REFUSED, EARLY
    ),
    "chunk that is longer than it says": row(
        get(CHUNKED[:-2], body=b"3\r\nabcd\r\n0\r\n\r\n"), "200 400 ends", REFUSED, EARLY
    ),
    "chunk beyond all numbers": row(
        get(CHUNKED[:-2], body=b"f" * 20 + b"\r\n"), "200 400 ends", REFUSED, EARLY
    ),
    "chunks with line feeds": row(
        get(CHUNKED[:-2], body=b"3\nabc\n0\n\n"), "200 400 ends", SERVED, LINE_FEED
    ),
    "chunk size in C's notation": row(
        get(CHUNKED[:-2], body=b"0x3\r\nabc\r\n0\r\n\r\n"), "200 400 ends", REFUSED, EARLY
    ),
    "blank before a chunk's size": row(
        get(CHUNKED[:-2], body=b" 3\r\nabc\r\n0\r\n\r\n"), "200 400 ends", REFUSED, EARLY
    ),
    "blank after a chunk's size": row(get(CHUNKED[:-2], body=b"3 \r\nabc\r\n0\r\n\r\n"), SERVED),
    "line feed in a chunk's extension": row(
        get(CHUNKED[:-2], body=b"3;x\ny\r\nabc\r\n0\r\n\r\n"), "200 400 ends", REFUSED, EARLY
    ),
    "carriage return in a chunk's extension": row(
        get(CHUNKED[:-2], body=b"3;x\ry\r\nabc\r\n0\r\n\r\n"), "200 400 ends", REFUSED, EARLY
    ),
    "chunk without an end": row(
        get(CHUNKED[:-2], body=b"3\r\nabc0\r\n\r\n"), "200 400 ends", REFUSED, EARLY
    ),
    "chunk that ends with a carriage return": row(
        get(CHUNKED[:-2], body=b"3\r\nabc\r0\r\n\r\n"), "200 400 ends", REFUSED, EARLY
    ),
    "trailer without a colon": row(get(CHUNKED[:-2], body=b"0\r\nnonsense\r\n\r\n"), SERVED),
    "trailer with a length": row(
        get(CHUNKED[:-2], body=b"0\r\nContent-Length: 9\r\n\r\n" + NEXT), "200 404 stays"
    ),
    "coding behind a vertical tab": row(
        get(b"Transfer-Encoding: \x0bchunked", body=b"0\r\n\r\n"), REFUSED, "501 ends", CONTROL
    ),
    "coding behind a zero": row(get(b"Transfer-Encoding: \0chunked", body=b"0\r\n\r\n"), REFUSED),
    "blank before the colon of a coding": row(
        get(b"Transfer-Encoding : chunked", body=b"0\r\n\r\n"), REFUSED
    ),
    "folded coding": row(get(b"Transfer-Encoding:", b" chunked", body=b"0\r\n\r\n"), REFUSED),
    "coding in quotes": row(get(b'Transfer-Encoding: "chunked"', body=b"0\r\n\r\n"), "501 ends"),
    "identity": row(get(b"Transfer-Encoding: identity"), "501 ends"),
    "chunked, then identity": row(
        get(b"Transfer-Encoding: chunked, identity", body=b"0\r\n\r\n"), "501 ends"
    ),
    "chunked and identity on two lines": row(
        get(CHUNKED[:-2], b"Transfer-Encoding: identity", body=b"0\r\n\r\n"),
        "501 ends",
        REFUSED,
        STATUS_501,
    ),
    "chunked in capitals": row(get(b"TRANSFER-ENCODING: CHUNKED", body=b"0\r\n\r\n"), SERVED),
    "empty coding": row(get(b"Transfer-Encoding:"), "501 ends"),
    "length and an empty coding": row(
        get(b"Content-Length: 3", b"Transfer-Encoding:", body=b"abc"), "501 ends"
    ),
    "length with a comma": row(get(b"Content-Length: 3,", body=b"abc"), REFUSED),
    "length with an underline": row(get(b"Content_Length: 30"), SERVED),
    "length of a request without a body, then the next": row(
        get(b"Content-Length: 0") + NEXT, "200 404 stays"
    ),
    # What follows.
    "pipelined": row(get() + NEXT, "200 404 stays"),
    "body, then the next": row(get(b"Content-Length: 5", body=b"GET /" + NEXT), "200 404 stays"),
    "chunks, then the next": row(
        get(CHUNKED[:-2], body=b"3;x=y\r\nabc\r\n0\r\nT: u\r\n\r\n" + NEXT), "200 404 stays"
    ),
    "close, then the next": row(get(b"Connection: close") + NEXT, LAST),
    "expectation": row(
        get(b"Expect: 100-continue", b"Content-Length: 3", body=b"abc"),
        LAST,
        "100 200 stays",
        EXPECTED,
    ),
    "unknown expectation": row(get(b"Expect: miracles"), SERVED),
    "upgrade": row(get(b"Connection: upgrade", b"Upgrade: h2c", b"HTTP2-Settings: "), SERVED),
    # Ranges and conditions.
    "range": row(get(b"Range: bytes=0-3"), "206 stays"),
    "range from the end": row(get(b"Range: bytes=-3"), "206 stays"),
    "range behind the end": row(get(b"Range: bytes=100-"), "416 stays"),
    "range backwards": row(get(b"Range: bytes=5-2"), SERVED, "416 stays", RANGES),
    "range of another unit": row(get(b"Range: lines=1-2"), SERVED),
    "range of nonsense": row(get(b"Range: bytes=a-b"), SERVED, "416 stays", RANGES),
    "two ranges": row(get(b"Range: bytes=0-1,3-4"), SERVED, "206 stays", ONE_RANGE),
    "date of nonsense": row(get(b"If-Modified-Since: yesterday"), SERVED),
}
