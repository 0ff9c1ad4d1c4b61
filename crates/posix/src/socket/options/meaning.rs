//! The meaning of recorded options for the stack, and the options that the stack does not have.
//!
//! The latter are refused as by a kernel that was built without them, or is older: accepted without
//! effect they would let in traffic that the program means to keep out, or let it wait for events
//! that never happen.

use std::time::Duration;

use slipstack_channel::{
    Congestion, FastOpenKeys, KeepAlive, MtuDiscovery, PortRange, SocketOption,
};

use crate::errno::Errno;
use crate::socket::options::attaching::CHOOSE_EXTENDED;
use crate::socket::options::record::{Options, Set, int_of};
use crate::socket::options::{limit, multicast, way};

/// Missing in libc (linux/in.h).
const IP_RECVFRAGSIZE: i32 = 25;
const IP_LOCAL_PORT_RANGE: i32 = 51;
/// Missing in libc (linux/in6.h).
const IPV6_FLOWINFO: i32 = 11;
const IPV6_FLOWLABEL_MGR: i32 = 32;
const IPV6_FLOWINFO_SEND: i32 = 33;
const IPV6_HOPOPTS: i32 = 54;
const IPV6_RTHDRDSTOPTS: i32 = 55;
const IPV6_RTHDR: i32 = 57;
const IPV6_DSTOPTS: i32 = 59;
const IPV6_RECVFRAGSIZE: i32 = 77;
/// Missing in libc (linux/udp.h).
const UDP_ENCAP: i32 = 100;
/// Missing in libc (linux/tcp.h, asm-generic/socket.h).
const TCP_TX_DELAY: i32 = 37;

impl Options {
    /// Returns the stack's counterpart of an option; `None` for those it has no use for.
    pub(crate) fn for_stack(&self, level: i32, name: i32) -> Option<SocketOption> {
        let int = || self.int(level, name);
        let from_int = |int| SocketOption::from_int(level, name, int);
        if let Some(option) = int().and_then(from_int) {
            return Some(option);
        }
        Some(match (level, name) {
            (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => {
                let ms = u64::try_from(int()?).ok()?;
                SocketOption::UserTimeout((ms != 0).then(|| Duration::from_millis(ms)))
            }
            (libc::IPPROTO_TCP, libc::TCP_LINGER2) => {
                let seconds = u64::try_from(int()?).ok();
                SocketOption::Linger2(seconds.map(Duration::from_secs))
            }
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let seconds = linger_of(self.bytes(level, name)?);
                SocketOption::ResetsAtEnd(seconds == Some(0))
            }
            (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) => {
                SocketOption::DeferAccept(timeouts(int()?))
            }
            (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_KEY) => {
                SocketOption::FastOpenKeys(FastOpenKeys::from_bytes(self.bytes(level, name)?)?)
            }
            (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => {
                SocketOption::Congestion(congestion(self.bytes(level, name)?)?)
            }
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL | libc::TCP_KEEPCNT)
            | (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => self.keep_alive(),
            (libc::SOL_SOCKET, libc::SO_RCVBUF) => {
                SocketOption::RcvBuf(buffer(int()?, limit::of_receiving()))
            }
            (libc::SOL_SOCKET, libc::SO_SNDBUF) => {
                SocketOption::SndBuf(buffer(int()?, limit::of_sending()))
            }
            (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE) => {
                SocketOption::RcvBuf(buffer(int()?.max(0), limit::NONE))
            }
            (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE) => {
                SocketOption::SndBuf(buffer(int()?.max(0), limit::NONE))
            }
            _ => return self.for_datagrams(level, name),
        })
    }

    /// Returns the ports that may be chosen, if the program has set a range.
    pub(crate) fn port_range(&self) -> Option<SocketOption> {
        self.bytes(libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE)?;
        self.for_stack(libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE)
    }

    /// Returns SO_MAX_PACING_RATE as TCP_INFO has it.
    pub(crate) fn pacing_rate_max(&self) -> u64 {
        let set = self.bytes(libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE);
        set.and_then(pacing_rate).unwrap_or(u64::MAX)
    }

    /// As [`Options::for_stack`], of headers and of datagrams.
    fn for_datagrams(&self, level: i32, name: i32) -> Option<SocketOption> {
        let int = || self.int(level, name);
        Some(match (level, name) {
            (libc::IPPROTO_IP, libc::IP_TRANSPARENT)
            | (libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT) => {
                SocketOption::Transparent(self.is_transparent())
            }
            (libc::SOL_SOCKET, libc::SO_NO_CHECK) => SocketOption::NoChecksum(int()? != 0),
            (libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE) => {
                let bounds = int()?.cast_unsigned();
                SocketOption::PortRange(PortRange {
                    first: bounds as u16,
                    last: (bounds >> 16) as u16,
                })
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => SocketOption::Tos(self.byte(level, name)?),
            (libc::IPPROTO_IP, libc::IP_MINTTL) => SocketOption::HopsMin(self.byte(level, name)?),
            (libc::IPPROTO_IPV6, libc::IPV6_MINHOPCOUNT) => {
                SocketOption::HopsMinV6(self.byte(level, name)?)
            }
            // -1: the default again.
            (libc::IPPROTO_IP, libc::IP_TTL) => {
                SocketOption::Ttl(self.byte(level, name).unwrap_or(0))
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                SocketOption::TosV6(self.byte(level, name).unwrap_or(0))
            }
            (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
                SocketOption::TtlV6(self.byte(level, name).unwrap_or(0))
            }
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER) => {
                SocketOption::MtuDiscovery(self.mtu_discovery(false))
            }
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER | libc::IPV6_DONTFRAG) => {
                SocketOption::MtuDiscoveryV6(self.mtu_discovery(true))
            }
            (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE) => {
                let rate = pacing_rate(self.bytes(level, name)?)?;
                // No connection reaches more than 32 bits.
                SocketOption::MaxPacingRate(u32::try_from(rate).unwrap_or(0))
            }
            (libc::SOL_SOCKET, _) => return way::for_stack(name, int()),
            _ => return multicast::for_stack(self, level, name),
        })
    }

    /// Returns SO_SNDBUF as the kernel counts (sk_sndbuf); `None` if it has not been set.
    pub(crate) fn sndbuf(&self) -> Option<u32> {
        let names = [libc::SO_SNDBUFFORCE, libc::SO_SNDBUF];
        let set = |set: &&Set| set.level == libc::SOL_SOCKET && names.contains(&set.name);
        let last = self.all().iter().rfind(set)?;
        match self.for_stack(last.level, last.name)? {
            SocketOption::SndBuf(bytes) => Some(2 * bytes),
            _ => None,
        }
    }

    /// Returns the treatment of large datagrams.
    pub(crate) fn mtu_discovery(&self, is_v6: bool) -> MtuDiscovery {
        let set = if is_v6 {
            if self.is_on(libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG) {
                return MtuDiscovery::Do;
            }
            self.int(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER)
        } else {
            self.int(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER)
        };
        let set = set.and_then(|set| u8::try_from(set).ok());
        set.and_then(MtuDiscovery::from_code).unwrap_or_default()
    }

    /// Options that a byte may carry as well as an int.
    fn byte(&self, level: i32, name: i32) -> Option<u8> {
        match self.bytes(level, name)? {
            [byte] => Some(*byte),
            bytes => u8::try_from(int_of(bytes)?).ok(),
        }
    }

    fn keep_alive(&self) -> SocketOption {
        // A time that the program has not set stays the stack's, also when that one changes.
        let seconds = |name| {
            let set = self.int(libc::IPPROTO_TCP, name);
            set.and_then(|s| u64::try_from(s).ok()).unwrap_or(0)
        };
        SocketOption::KeepAlive(KeepAlive {
            enabled: self.is_on(libc::SOL_SOCKET, libc::SO_KEEPALIVE),
            idle: Duration::from_secs(seconds(libc::TCP_KEEPIDLE)),
            interval: Duration::from_secs(seconds(libc::TCP_KEEPINTVL)),
            probes: seconds(libc::TCP_KEEPCNT).min(127) as u8,
        })
    }
}

/// Returns the seconds of SO_LINGER; `None` if it is off.
pub(crate) fn linger_of(value: &[u8]) -> Option<u32> {
    let on = int_of(value).unwrap_or(0);
    let seconds = value.get(4..).and_then(int_of).unwrap_or(0);
    // sk_setsockopt(): a negative time is a very long one.
    (on != 0).then_some(seconds.cast_unsigned())
}

/// secs_to_retrans(): how often a SYN-ACK's timer runs out within so many seconds.
fn timeouts(seconds: i32) -> u8 {
    const LONGEST: i64 = 120;
    let (mut count, mut timeout, mut over) = (0, 1, 0);
    while over < i64::from(seconds) && count < u8::MAX {
        over += timeout;
        count += 1;
        timeout = (timeout * 2).min(LONGEST);
    }
    count
}

/// Bytes a second: sk_setsockopt() takes a long, or an int whose largest value is no limit.
fn pacing_rate(value: &[u8]) -> Option<u64> {
    Some(match value.first_chunk() {
        Some(long) => u64::from_ne_bytes(*long),
        None => match int_of(value)?.cast_unsigned() {
            u32::MAX => u64::MAX,
            rate => rate.into(),
        },
    })
}

/// sock_setsockopt() doubles the requested size, for its own bookkeeping; the ring needs none.
fn buffer(asked: i32, limit: u32) -> u32 {
    const LEAST: u32 = 2304;
    // A negative size counts as a very large one.
    asked.cast_unsigned().min(limit).max(LEAST)
}

/// TCP_CA_NAME_MAX (linux/tcp.h), the terminating zero included.
pub(crate) const CONGESTION_NAME_MAX: usize = 16;

/// The stack's algorithm of this name, which may lack its terminating zero.
pub(crate) fn congestion(name: &[u8]) -> Option<Congestion> {
    let name = &name[..name.len().min(CONGESTION_NAME_MAX - 1)];
    let end = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(name.len());
    Congestion::ALL
        .into_iter()
        .find(|kind| kind.name().as_bytes() == &name[..end])
}

/// Segment authentication (tcp(7) TCP_MD5SIG, TCP_MD5SIG_EXT, TCP_AO_ADD_KEY, TCP_AO_DEL_KEY,
/// TCP_AO_INFO); delays of what is sent.
const ALWAYS: [(i32, i32); 6] = [
    (libc::IPPROTO_TCP, 14),
    (libc::IPPROTO_TCP, 32),
    (libc::IPPROTO_TCP, 38),
    (libc::IPPROTO_TCP, 39),
    (libc::IPPROTO_TCP, 40),
    (libc::IPPROTO_TCP, TCP_TX_DELAY),
];

/// eBPF programs that filter: without CONFIG_BPF_SYSCALL bpf_prog_get_type() refuses each.
const ATTACH_EXTENDED: (i32, i32) = (libc::SOL_SOCKET, libc::SO_ATTACH_BPF);

/// Returns the error of a `setsockopt`, if the socket does not have the option.
pub(crate) fn refusal(is_stream: bool, level: i32, name: i32, value: &[u8]) -> Option<Errno> {
    if ALWAYS.contains(&(level, name)) || is_refused_if_set(level, name) && is_set(value) {
        return Some(Errno::ENOPROTOOPT);
    }
    match (level, name) {
        ATTACH_EXTENDED => Some(Errno::EOPNOTSUPP),
        CHOOSE_EXTENDED if is_stream => Some(Errno::EOPNOTSUPP),
        // A connection goes to whichever listener of a group accepts it first.
        (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF) if is_stream => Some(Errno::ENOPROTOOPT),
        // The size of a datagram's largest fragment is not kept: as from a kernel before 4.9. A
        // stream has none, so its option is without effect on the kernel too.
        (libc::IPPROTO_IP, IP_RECVFRAGSIZE) | (libc::IPPROTO_IPV6, IPV6_RECVFRAGSIZE)
            if !is_stream && is_set(value) =>
        {
            Some(Errno::ENOPROTOOPT)
        }
        // A routing header: as from a kernel without Mobile IPv6 and segment routing.
        (libc::IPPROTO_IPV6, IPV6_RTHDR) if !value.is_empty() => Some(Errno::EINVAL),
        // Other extension headers of packets to come: as without CAP_NET_RAW.
        (libc::IPPROTO_IPV6, IPV6_HOPOPTS | IPV6_RTHDRDSTOPTS | IPV6_DSTOPTS)
            if value.len() >= 8 =>
        {
            Some(Errno::EPERM)
        }
        // A SYN with its link header: the stack keeps what is behind that.
        (libc::IPPROTO_TCP, libc::TCP_SAVE_SYN) if int_of(value) == Some(2) => Some(Errno::EINVAL),
        _ => None,
    }
}

/// Returns whether an option is refused unless its value switches it off.
fn is_refused_if_set(level: i32, name: i32) -> bool {
    matches!(
        (level, name),
        (libc::SOL_UDP, UDP_ENCAP)
            | (libc::IPPROTO_IP, libc::IP_OPTIONS)
            | (
                libc::IPPROTO_IPV6,
                IPV6_FLOWINFO | IPV6_FLOWLABEL_MGR | IPV6_FLOWINFO_SEND
            )
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
        let chooser = libc::SO_ATTACH_REUSEPORT_CBPF;
        let refused = of(stream, socket, chooser, &on);
        assert_eq!(refused, Some(Errno::ENOPROTOOPT));
        assert_eq!(of(dgram, socket, chooser, &on), None);
        let (v6, header) = (libc::IPPROTO_IPV6, [0, 0, 1, 4, 0, 0, 0, 0]);
        assert_eq!(of(dgram, v6, IPV6_HOPOPTS, &header), Some(Errno::EPERM));
        assert_eq!(of(dgram, v6, IPV6_HOPOPTS, &[]), None);
        assert_eq!(of(dgram, v6, IPV6_RTHDR, &header), Some(Errno::EINVAL));
        assert_eq!(of(dgram, v6, IPV6_RTHDR, &[]), None);
        assert_eq!(of(dgram, v6, IPV6_FLOWINFO, &on), Some(Errno::ENOPROTOOPT));
        assert_eq!(of(dgram, v6, IPV6_FLOWINFO, &off), None);
        for (level, name) in [(libc::IPPROTO_IP, IP_RECVFRAGSIZE), (v6, IPV6_RECVFRAGSIZE)] {
            assert_eq!(of(dgram, level, name, &on), Some(Errno::ENOPROTOOPT));
            assert_eq!(of(dgram, level, name, &off), None);
            assert_eq!(of(stream, level, name, &on), None);
        }
        let extended = [libc::SO_ATTACH_BPF, libc::SO_ATTACH_REUSEPORT_EBPF];
        for name in extended {
            assert_eq!(of(stream, socket, name, &on), Some(Errno::EOPNOTSUPP));
        }
        assert_eq!(of(dgram, socket, extended[0], &on), Some(Errno::EOPNOTSUPP));
        assert_eq!(of(dgram, socket, extended[1], &on), None);
    }

    #[test]
    fn a_buffer_is_no_larger_than_the_system_allows_and_not_smaller_than_the_least() {
        let table = [
            (1000, 2304),
            (300_000, 300_000),
            (1 << 30, 4 << 20),
            (-1, 4 << 20),
            (0, 2304),
        ];
        for (asked, given) in table {
            assert_eq!(buffer(asked, 4 << 20), given, "{asked}");
        }
        assert_eq!(buffer(i32::MAX, limit::NONE), limit::NONE);
    }

    #[test]
    fn seconds_of_deferral_are_counted_in_timeouts() {
        for (seconds, expected) in [
            (-3, 0),
            (0, 0),
            (1, 1),
            (2, 2),
            (3, 2),
            (4, 3),
            (7, 3),
            (8, 4),
        ] {
            assert_eq!(timeouts(seconds), expected, "{seconds}");
        }
        assert_eq!(timeouts(i32::MAX), u8::MAX);
    }

    #[test]
    fn the_last_value_of_an_option_counts() {
        let mut options = Options::default();
        for value in [1i32, 0, 1] {
            options.set(libc::IPPROTO_TCP, libc::TCP_NODELAY, &value.to_ne_bytes());
        }
        assert_eq!(options.all().len(), 1);
        assert_eq!(
            options.for_stack(libc::IPPROTO_TCP, libc::TCP_NODELAY),
            Some(SocketOption::NoDelay(true))
        );
    }

    #[test]
    fn options_set_by_an_int_have_linuxs_numbers() {
        let tcp = [
            (libc::TCP_NODELAY, SocketOption::NoDelay(true)),
            (libc::TCP_CORK, SocketOption::Cork(true)),
            (libc::TCP_QUICKACK, SocketOption::QuickAck(true)),
            (libc::TCP_MAXSEG, SocketOption::MaxSeg(Some(9))),
            (libc::TCP_SYNCNT, SocketOption::SynCount(Some(9))),
            (libc::TCP_WINDOW_CLAMP, SocketOption::WindowClamp(Some(9))),
            (libc::TCP_FASTOPEN, SocketOption::FastOpen(9)),
            (
                libc::TCP_FASTOPEN_CONNECT,
                SocketOption::FastOpenConnect(true),
            ),
            (
                libc::TCP_FASTOPEN_NO_COOKIE,
                SocketOption::FastOpenNoCookie(true),
            ),
        ];
        for (name, option) in tcp {
            assert_eq!(
                SocketOption::from_int(libc::IPPROTO_TCP, name, 9),
                Some(option)
            );
        }
        let others = [
            (
                libc::IPPROTO_IP,
                libc::IP_RECVERR,
                SocketOption::ReturnsV4(true),
            ),
            (
                libc::IPPROTO_IPV6,
                libc::IPV6_RECVERR,
                SocketOption::ReturnsV6(true),
            ),
            (
                libc::SOL_UDP,
                libc::UDP_GRO,
                SocketOption::TakesJoined(true),
            ),
        ];
        for (level, name, option) in others {
            assert_eq!(SocketOption::from_int(level, name, 9), Some(option));
        }
        let mss = |int| SocketOption::from_int(libc::IPPROTO_TCP, libc::TCP_MAXSEG, int);
        assert_eq!(mss(0), Some(SocketOption::MaxSeg(None)));
        assert_eq!((mss(-1), mss(1 << 16)), (None, None));
    }

    #[test]
    fn keep_alive_collects_its_four_options() {
        let mut options = Options::default();
        options.set(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, &10i32.to_ne_bytes());
        options.set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, &1i32.to_ne_bytes());
        assert_eq!(
            options.for_stack(libc::SOL_SOCKET, libc::SO_KEEPALIVE),
            Some(SocketOption::KeepAlive(KeepAlive {
                enabled: true,
                idle: Duration::from_secs(10),
                ..KeepAlive::default()
            }))
        );
    }

    #[test]
    fn congestion_control_algorithms_have_linuxs_names() {
        for (name, kind) in [
            (&b"cubic"[..], Some(Congestion::Cubic)),
            (b"reno\0", Some(Congestion::NewReno)),
            (b"bbr\0rest", Some(Congestion::Bbr)),
            (b"dctcp", Some(Congestion::Dctcp)),
            (b"vegas", None),
            (b"cubi", None),
            (b"", None),
        ] {
            assert_eq!(congestion(name), kind);
        }
    }

    #[test]
    fn an_accepted_sockets_options_change_without_the_listeners() {
        let mut listener = Options::default();
        listener.set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, &1i32.to_ne_bytes());
        let mut accepted = listener.clone();
        accepted.set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, &0i32.to_ne_bytes());
        assert!(listener.is_on(libc::SOL_SOCKET, libc::SO_KEEPALIVE));
        assert!(!accepted.is_on(libc::SOL_SOCKET, libc::SO_KEEPALIVE));
    }
}
