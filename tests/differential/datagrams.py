"""The puppet's calls of UDP. Each returns its outcome as text, with addresses as ADDRESS/PORT."""

import ctypes
import errno
import fcntl
import select
import socket
import struct
import termios

LIBC = ctypes.CDLL(None, use_errno=True)
SOCKETS = {}
EVENTS = {
    select.POLLIN: "in",
    select.POLLOUT: "out",
    select.POLLPRI: "pri",
    select.POLLRDHUP: "rdhup",
    select.POLLHUP: "hup",
    select.POLLERR: "err",
}
FLAGS = {socket.MSG_TRUNC: "TRUNC", socket.MSG_CTRUNC: "CTRUNC", 0x2000: "ERRQUEUE"}
# The marks of a burst.
ALL = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
FAMILIES = {"v4": socket.AF_INET, "v6": socket.AF_INET6, "mapped": socket.AF_INET6}
INTEGERS = {(0, 2): "TTL", (41, 52): "HOPLIMIT", (41, 67): "TCLASS"}


def udp_open(name, label, kind):
    made = socket.socket(FAMILIES[kind], socket.SOCK_DGRAM)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    SOCKETS[name, label] = made
    return "ok"


def udp_reopen(name, label, kind):
    SOCKETS.pop((name, label)).close()
    return udp_open(name, label, kind)


def udp_bind(name, label, address):
    SOCKETS[name, label].bind(tuple(address))
    return "ok"


def udp_connect(name, label, address):
    SOCKETS[name, label].connect(tuple(address))
    return "ok"


def udp_disconnect(name, label):
    if LIBC.connect(SOCKETS[name, label].fileno(), struct.pack("H14x", socket.AF_UNSPEC), 16) < 0:
        raise OSError(ctypes.get_errno(), "")
    return "ok"


def udp_send(name, label, length, mark, flags):
    return SOCKETS[name, label].send(mark.encode() * length, flags | socket.MSG_NOSIGNAL)


def udp_send_to(name, label, address, length, mark, flags):
    return SOCKETS[name, label].sendto(
        mark.encode() * length, flags | socket.MSG_NOSIGNAL, tuple(address)
    )


def udp_send_message(name, label, address, length, mark, level, number, value):
    control = [(level, number, struct.pack("i", value))]
    return SOCKETS[name, label].sendmsg(
        [mark.encode() * length], control, socket.MSG_NOSIGNAL, tuple(address)
    )


def udp_receive(name, label, size, flags):
    place = bytearray(size)
    count, sender = (
        SOCKETS[name, label].recvfrom_into(place, size, flags)
        if size
        else (0, SOCKETS[name, label].recvfrom(0, flags)[1])
    )
    return f"{count} {content(place[: min(count, size)])} from {named(sender)}"


def udp_receive_message(name, label, size, room, flags):
    data, control, told, sender = SOCKETS[name, label].recvmsg(size, room, flags)
    flags = [text for bit, text in FLAGS.items() if told & bit]
    controls = [controlled(*it) for it in control]
    return " ".join([f"{len(data)} {content(data)} from {named(sender)}", *flags, *controls])


def udp_drain(name, label):
    """Reads all datagrams that wait. Of a burst, whose marks are capitals, it reports whether
    all came, or the first of them."""
    burst, others = "", []
    while True:
        try:
            data, sender = SOCKETS[name, label].recvfrom(2000)
        except BlockingIOError:
            break
        except OSError as error:
            others.append(errno.errorcode[error.errno])
            continue
        mark = content(data)
        burst, others = (
            (burst + mark, others)
            if mark.isupper()
            else (burst, [*others, f"{len(data)} {mark} from {named(sender)}"])
        )
    return " ".join([*others, came(burst)])


def came(burst):
    if len(burst) in (0, len(ALL)):
        return {"": "none", ALL: "all"}.get(burst, burst)
    return "the first" if ALL.startswith(burst) else burst


def udp_shutdown(name, label, how):
    SOCKETS[name, label].shutdown(how)
    return "ok"


def udp_option(name, label, level, number, value):
    SOCKETS[name, label].setsockopt(level, number, value)
    return "ok"


def udp_error(name, label):
    number = SOCKETS[name, label].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return errno.errorcode.get(number, number)


def udp_waiting(name, label):
    return struct.unpack("i", fcntl.ioctl(SOCKETS[name, label], termios.FIONREAD, b"\0" * 4))[0]


def udp_names(name, label):
    asked = SOCKETS[name, label]
    try:
        peer = named(asked.getpeername())
    except OSError as error:
        peer = errno.errorcode[error.errno]
    return f"{named(asked.getsockname())} to {peer}"


def udp_events(name, label):
    poll = select.poll()
    poll.register(
        SOCKETS[name, label], select.POLLIN | select.POLLOUT | select.POLLPRI | select.POLLRDHUP
    )
    found = poll.poll(0)
    return " ".join(text for bit, text in EVENTS.items() if found and found[0][1] & bit)


def udp_close(name):
    for key in [key for key in SOCKETS if key[0] == name]:
        SOCKETS.pop(key).close()
    return "ok"


def content(data):
    """The mark of a datagram, which all its bytes are."""
    marks = sorted(set(bytes(data)))
    return "".join(map(chr, marks)) or "-"


def named(address):
    return f"{address[0]}/{address[1]}" if address else "nobody"


def controlled(level, number, data):
    """A control message; a truncated one is reported by its bytes."""
    if (level, number) in INTEGERS and len(data) == 4:
        return f"{INTEGERS[level, number]} {struct.unpack('i', data)[0]}"
    if (level, number) == (0, 1) and len(data) == 1:
        return f"TOS {data[0]}"
    if (level, number) == (0, 8) and len(data) == 12:
        return f"PKTINFO {socket.inet_ntoa(data[4:8])} {socket.inet_ntoa(data[8:12])}"
    if (level, number) == (41, 50) and len(data) == 20:
        return f"PKTINFO {socket.inet_ntop(socket.AF_INET6, data[:16])}"
    if (level, number) == (socket.SOL_SOCKET, 40):
        return "LOST some"
    if (level, number) in ((0, 11), (41, 25)):
        return returned(data)
    return f"{level}/{number} {data.hex()}"


def returned(data):
    """struct sock_extended_err and the address that reported the error."""
    if len(data) < 16:
        return f"RECVERR {len(data)} bytes"
    number, origin, kind, code, _, info, extra = struct.unpack("IBBBBII", data[:16])
    family = struct.unpack("H", data[16:18])[0] if len(data) >= 18 else 0
    offender = {
        socket.AF_INET: lambda: socket.inet_ntoa(data[20:24]),
        socket.AF_INET6: lambda: socket.inet_ntop(socket.AF_INET6, data[24:40]),
    }.get(family, lambda: f"family {family}")()
    return (
        f"RECVERR {errno.errorcode.get(number, number)} origin {origin} {kind}/{code} info"
        f" {info} data {extra} by {offender} in {len(data)}"
    )


CALLS = {
    function.__name__: function
    for function in (
        udp_open,
        udp_reopen,
        udp_bind,
        udp_connect,
        udp_disconnect,
        udp_send,
        udp_send_to,
        udp_send_message,
        udp_receive,
        udp_receive_message,
        udp_drain,
        udp_shutdown,
        udp_option,
        udp_error,
        udp_waiting,
        udp_names,
        udp_events,
        udp_close,
    )
}
