//! Socket options by FreeBSD's numbers.

/// FreeBSD's SOL_SOCKET.
const SOL_SOCKET: i32 = 0xffff;

/// Rows: FreeBSD's number, Linux's.
const OF_SOCKET: &[(i32, i32)] = &[
    (0x0001, libc::SO_DEBUG),
    (0x0002, libc::SO_ACCEPTCONN),
    (0x0004, libc::SO_REUSEADDR),
    (0x0008, libc::SO_KEEPALIVE),
    (0x0010, libc::SO_DONTROUTE),
    (0x0020, libc::SO_BROADCAST),
    (0x0080, libc::SO_LINGER),
    (0x0100, libc::SO_OOBINLINE),
    (0x0200, libc::SO_REUSEPORT),
    (0x0400, libc::SO_TIMESTAMP),
    (0x1001, libc::SO_SNDBUF),
    (0x1002, libc::SO_RCVBUF),
    (0x1003, libc::SO_SNDLOWAT),
    (0x1004, libc::SO_RCVLOWAT),
    (0x1005, libc::SO_SNDTIMEO),
    (0x1006, libc::SO_RCVTIMEO),
    (0x1007, libc::SO_ERROR),
    (0x1008, libc::SO_TYPE),
    (0x1014, slipstack_posix::SO_SETFIB),
    (0x1016, libc::SO_PROTOCOL),
];
const OF_IP: &[(i32, i32)] = &[
    (1, libc::IP_OPTIONS),
    (2, libc::IP_HDRINCL),
    (3, libc::IP_TOS),
    (4, libc::IP_TTL),
    (9, libc::IP_MULTICAST_IF),
    (10, libc::IP_MULTICAST_TTL),
    (11, libc::IP_MULTICAST_LOOP),
    (12, libc::IP_ADD_MEMBERSHIP),
    (13, libc::IP_DROP_MEMBERSHIP),
    (24, libc::IP_TRANSPARENT),
    (65, libc::IP_RECVTTL),
    (66, libc::IP_MINTTL),
    (68, libc::IP_RECVTOS),
    (70, libc::IP_ADD_SOURCE_MEMBERSHIP),
    (71, libc::IP_DROP_SOURCE_MEMBERSHIP),
    (72, libc::IP_BLOCK_SOURCE),
    (73, libc::IP_UNBLOCK_SOURCE),
];
const OF_IPV6: &[(i32, i32)] = &[
    (4, libc::IPV6_UNICAST_HOPS),
    (9, libc::IPV6_MULTICAST_IF),
    (10, libc::IPV6_MULTICAST_HOPS),
    (11, libc::IPV6_MULTICAST_LOOP),
    (12, libc::IPV6_ADD_MEMBERSHIP),
    (13, libc::IPV6_DROP_MEMBERSHIP),
    (27, libc::IPV6_V6ONLY),
    (36, libc::IPV6_RECVPKTINFO),
    (37, libc::IPV6_RECVHOPLIMIT),
    (57, libc::IPV6_RECVTCLASS),
    (61, libc::IPV6_TCLASS),
    (62, libc::IPV6_DONTFRAG),
];
const OF_TCP: &[(i32, i32)] = &[
    (1, libc::TCP_NODELAY),
    (2, libc::TCP_MAXSEG),
    (4, libc::TCP_CORK),
    (32, libc::TCP_INFO),
    (64, libc::TCP_CONGESTION),
    (256, libc::TCP_KEEPIDLE),
    (512, libc::TCP_KEEPINTVL),
    (1024, libc::TCP_KEEPCNT),
    (1025, libc::TCP_FASTOPEN),
];

/// Returns level and option by Linux's numbers, or `None` if there is no such option. An option
/// that only FreeBSD has keeps its number, which `ff_setsockopt` knows.
pub fn of_linux(level: i32, name: i32) -> Option<(i32, i32)> {
    let (to, rows) = match level {
        SOL_SOCKET => (libc::SOL_SOCKET, OF_SOCKET),
        libc::IPPROTO_IP => (level, OF_IP),
        libc::IPPROTO_IPV6 => (level, OF_IPV6),
        libc::IPPROTO_TCP => (level, OF_TCP),
        _ => return None,
    };
    let row = rows.iter().find(|(number, _)| *number == name);
    match row {
        Some((_, linux)) => Some((to, *linux)),
        None if level == libc::IPPROTO_IP && matches!(name, 7 | 67) => Some((level, name)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freebsds_option_numbers_become_linuxs_or_are_refused() {
        assert_eq!(
            of_linux(0xffff, 4),
            Some((libc::SOL_SOCKET, libc::SO_REUSEADDR))
        );
        assert_eq!(of_linux(libc::IPPROTO_IP, 67), Some((0, 67)));
        assert_eq!(of_linux(libc::IPPROTO_TCP, 3), None);
        assert_eq!(of_linux(1, 2), None);
    }
}
