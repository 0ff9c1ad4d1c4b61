//! Options of a socket that another process has made, read back from the kernel's part: that has
//! them too, and goes along with `exec` and SCM_RIGHTS.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::addr::Family;
use crate::kernel::Kernel;
use crate::socket::ancillary::{
    IPV6_ORIGDSTADDR, RCVMARK, RCVPRIORITY, TIMESTAMP_NEW, TIMESTAMPING_NEW, TIMESTAMPNS_NEW,
};
use crate::socket::description::Kind;
use crate::socket::options::Options;
use crate::socket::options::attaching::CHOOSE;
use crate::socket::options::meaning::CONGESTION_NAME_MAX;
use crate::socket::options::way::{SO_SETFIB, is_leaving};

/// Options of both kinds of sockets.
const OF_ALL: [(i32, i32); 9] = [
    (libc::SOL_SOCKET, libc::SO_RCVTIMEO),
    (libc::SOL_SOCKET, libc::SO_SNDTIMEO),
    (libc::SOL_SOCKET, libc::SO_MARK),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER),
    (libc::IPPROTO_IP, libc::IP_MINTTL),
];

/// The class, which IP_TOS sets too.
const CLASS: (i32, i32) = (libc::SOL_SOCKET, libc::SO_PRIORITY);

const OF_IPV6: [(i32, i32); 5] = [
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER),
    (libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG),
    (libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT),
];

const OF_STREAMS: [(i32, i32); 18] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_LINGER),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_TCP, libc::TCP_LINGER2),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
    (libc::IPPROTO_TCP, libc::TCP_SYNCNT),
    (libc::IPPROTO_TCP, libc::TCP_MAXSEG),
    (libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP),
    (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
    (libc::IPPROTO_TCP, libc::TCP_SAVE_SYN),
    (libc::IPPROTO_TCP, libc::TCP_FASTOPEN),
    (libc::IPPROTO_TCP, libc::TCP_INQ),
    (libc::IPPROTO_TCP, libc::TCP_CONGESTION),
];

const OF_DATAGRAMS: [(i32, i32); 20] = [
    (libc::SOL_SOCKET, libc::SO_BROADCAST),
    (libc::SOL_SOCKET, libc::SO_NO_CHECK),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
    (libc::SOL_SOCKET, libc::SO_RXQ_OVFL),
    (libc::IPPROTO_IP, libc::IP_PKTINFO),
    (libc::IPPROTO_IP, libc::IP_RECVTOS),
    (libc::IPPROTO_IP, libc::IP_RECVTTL),
    (libc::IPPROTO_IP, libc::IP_RECVERR),
    (libc::IPPROTO_IP, libc::IP_RECVORIGDSTADDR),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_TTL),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_LOOP),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP),
    (libc::SOL_UDP, libc::UDP_SEGMENT),
    (libc::SOL_UDP, libc::UDP_GRO),
];

/// Options that the kernel's part does not tell: the stack alone has them, or has them otherwise.
const UNTOLD: [(i32, i32); 24] = [
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, SO_SETFIB),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPING),
    (libc::SOL_SOCKET, TIMESTAMPING_NEW),
    (libc::SOL_SOCKET, TIMESTAMP_NEW),
    (libc::SOL_SOCKET, TIMESTAMPNS_NEW),
    (libc::SOL_SOCKET, RCVMARK),
    (libc::SOL_SOCKET, RCVPRIORITY),
    (libc::SOL_SOCKET, libc::SO_ZEROCOPY),
    (libc::SOL_SOCKET, libc::SO_SELECT_ERR_QUEUE),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_IF),
    (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL),
    (libc::IPPROTO_IP, libc::IP_UNICAST_IF),
    (libc::IPPROTO_IP, libc::IP_TRANSPARENT),
    (libc::IPPROTO_IP, libc::IP_FREEBIND),
    (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT),
    (libc::IPPROTO_IPV6, IPV6_ORIGDSTADDR),
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF),
    (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_IF),
    (libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT),
    (libc::IPPROTO_IPV6, libc::IPV6_FREEBIND),
    CHOOSE,
];

/// Whether the kernel's part of a socket does not tell an option, as it was recorded.
pub(crate) fn is_untold(level: i32, name: i32) -> bool {
    UNTOLD.contains(&(level, name)) || level == libc::SOL_SOCKET && is_leaving(name)
}

/// Sizes, which are twice what a program sets.
const BUFFERS: [i32; 2] = [libc::SO_RCVBUF, libc::SO_SNDBUF];

/// Returns the options of the kernel's part `number` that differ from those of `fresh`, a new
/// socket of the same kind.
pub(crate) fn options_of(
    kernel: &dyn Kernel,
    number: i32,
    fresh: &OwnedFd,
    (family, kind): (Family, Kind),
) -> Options {
    let value = |of: i32, (level, name)| {
        let mut bytes = [0; CONGESTION_NAME_MAX];
        let len = kernel.getsockopt(of, level, name, &mut bytes).ok()?;
        Some(bytes[..len].to_vec())
    };
    let fresh = fresh.as_raw_fd();
    let changed =
        |option| value(number, option).filter(|it| value(fresh, option).as_ref() != Some(it));
    let mut options = Options::default();
    for name in BUFFERS {
        if let Some(size) = changed((libc::SOL_SOCKET, name)) {
            options.set(libc::SOL_SOCKET, name, &half(&size));
        }
    }
    let of_family: &[_] = if family == Family::V6 { &OF_IPV6 } else { &[] };
    let of_kind: &[_] = match kind {
        Kind::Stream => &OF_STREAMS,
        Kind::Dgram => &OF_DATAGRAMS,
    };
    for option in OF_ALL.iter().chain(of_family).chain(of_kind) {
        let is_there = option.0 != libc::IPPROTO_IPV6 || family == Family::V6;
        if let Some(set) = changed(*option).filter(|_| is_there) {
            options.set(option.0, option.1, &set);
        }
    }
    let has_tos = options.bytes(libc::IPPROTO_IP, libc::IP_TOS).is_some();
    let is_set = |class: &Vec<u8>| has_tos || class.iter().any(|byte| *byte != 0);
    if let Some(class) = value(number, CLASS).filter(is_set) {
        options.set(CLASS.0, CLASS.1, &class);
    }
    options
}

fn half(value: &[u8]) -> Vec<u8> {
    let value = value.first_chunk().map_or(0, |it| i32::from_ne_bytes(*it));
    (value / 2).to_ne_bytes().to_vec()
}
