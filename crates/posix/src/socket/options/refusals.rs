//! Options that the stack does not have. They are refused as by a kernel that was built without
//! them, or is older: accepted without effect they would let in traffic that the program means to
//! keep out, or let it wait for events that never happen.

use crate::errno::Errno;

/// Not in libc (linux/tcp.h, linux/udp.h, asm-generic/socket.h).
const SO_BUF_LOCK: i32 = 72;
const TCP_THIN_LINEAR_TIMEOUTS: i32 = 16;
const TCP_TX_DELAY: i32 = 37;
const TCP_RTO_MAX_MS: i32 = 44;
const TCP_RTO_MIN_US: i32 = 45;
const TCP_DELACK_MAX_US: i32 = 46;
const UDP_ENCAP: i32 = 100;

/// Segment authentication (tcp(7) TCP_MD5SIG, TCP_MD5SIG_EXT, TCP_AO_ADD_KEY, TCP_AO_DEL_KEY,
/// TCP_AO_INFO) and minimum TTLs (ip(7) IP_MINTTL, IPV6_MINHOPCOUNT); SYNs saved for the program,
/// Fast Open keys, delays; IP options.
const ALWAYS: [(i32, i32); 15] = [
    (libc::IPPROTO_TCP, 14),
    (libc::IPPROTO_TCP, 32),
    (libc::IPPROTO_TCP, 38),
    (libc::IPPROTO_TCP, 39),
    (libc::IPPROTO_TCP, 40),
    (libc::IPPROTO_TCP, libc::TCP_SAVE_SYN),
    (libc::IPPROTO_TCP, libc::TCP_SAVED_SYN),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_KEY),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_NO_COOKIE),
    (libc::IPPROTO_TCP, TCP_TX_DELAY),
    (libc::IPPROTO_TCP, TCP_RTO_MAX_MS),
    (libc::IPPROTO_TCP, TCP_RTO_MIN_US),
    (libc::IPPROTO_TCP, TCP_DELACK_MAX_US),
    (libc::IPPROTO_IP, libc::IP_MINTTL),
    (libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT),
];

/// eBPF programs: without CONFIG_BPF_SYSCALL bpf_prog_get_type() refuses each.
const PROGRAMS: [(i32, i32); 2] = [
    (libc::SOL_SOCKET, libc::SO_ATTACH_BPF),
    (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_EBPF),
];

/// Returns the error of a `setsockopt`, if the socket does not have the option.
pub(crate) fn refusal(is_stream: bool, level: i32, name: i32, value: &[u8]) -> Option<Errno> {
    if ALWAYS.contains(&(level, name)) || is_refused_if_set(level, name) && is_set(value) {
        return Some(Errno::ENOPROTOOPT);
    }
    if PROGRAMS.contains(&(level, name)) {
        return Some(Errno::EOPNOTSUPP);
    }
    match (level, name) {
        // A connection goes to whichever listener of a group accepts it first.
        (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF) if is_stream => Some(Errno::ENOPROTOOPT),
        // Buffers that tune themselves are not locked.
        (libc::SOL_SOCKET, SO_BUF_LOCK) if is_stream && is_set(value) => Some(Errno::ENOPROTOOPT),
        _ => None,
    }
}

/// Returns whether an option is refused unless its value switches it off. Timers of thin streams
/// back off like others'.
fn is_refused_if_set(level: i32, name: i32) -> bool {
    matches!(
        (level, name),
        (libc::SOL_UDP, UDP_ENCAP)
            | (libc::IPPROTO_IP, libc::IP_OPTIONS)
            | (libc::IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS)
    )
}

fn is_set(value: &[u8]) -> bool {
    value.iter().any(|byte| *byte != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_options_are_refused_if_they_would_have_an_effect() {
        let (on, off) = (1i32.to_ne_bytes(), 0i32.to_ne_bytes());
        let of = |is_stream, level, name, value: &[u8]| refusal(is_stream, level, name, value);
        let (stream, dgram) = (true, false);
        let (socket, udp) = (libc::SOL_SOCKET, libc::SOL_UDP);
        assert_eq!(of(dgram, udp, UDP_ENCAP, &off), None);
        assert_eq!(of(dgram, udp, UDP_ENCAP, &on), Some(Errno::ENOPROTOOPT));
        let thin = (stream, libc::IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS);
        let lock = (stream, socket, SO_BUF_LOCK);
        for (is_stream, level, name) in [thin, lock] {
            assert_eq!(of(is_stream, level, name, &off), None);
            assert_eq!(of(is_stream, level, name, &on), Some(Errno::ENOPROTOOPT));
        }
        assert_eq!(of(dgram, socket, SO_BUF_LOCK, &on), None);
        let ebpf = of(dgram, socket, libc::SO_ATTACH_REUSEPORT_EBPF, &on);
        assert_eq!(ebpf, Some(Errno::EOPNOTSUPP));
    }
}
