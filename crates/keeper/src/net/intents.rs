//! Intents: binds and listens that have not reached a stack yet.
//!
//! A program listens on the stack when it first waits on the socket, so that workers listen and
//! their master does not; a UDP socket that is bound behaves alike. Until then its kernel socket
//! holds the port, with IP_FREEBIND set. A datagram for such a socket is kept, and a SYN is
//! answered by this stack (see `backlogs.rs`).

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use slipstack_channel::control::net::NetworkState;
use slipstack_device::Transport;
use slipstack_device::netlink::{self, Request};
use slipstack_stack::Choice;

/// Time for which the kernel's positive answer is cached.
const FRESH_NS: u64 = 100_000_000;
/// Interval at which the kernel is asked about ports on which nothing was found. In between it is
/// asked in [`BURST`] further cases: a program may just have begun to listen, and a peer that is
/// refused does not try again.
const NO_FRESH_NS: u64 = 2_000_000;
const BURST: u64 = 16;
/// Sockets read at most.
const SOCKETS_MAX: usize = 4096;
const STATE_LISTEN: u32 = 1 << 10;
/// An unconnected UDP socket.
const STATE_CLOSE: u32 = 1 << 7;
/// `struct inet_diag_req_v2` and `struct inet_diag_msg`.
const REQUEST: usize = 56;
const ANSWER: usize = 72;
/// `idiag_wqueue`: of a listener the most that wait.
const BACKLOG_AT: usize = 60;
/// `idiag_if`
const DEVICE_AT: usize = 40;
/// INET_DIAG_SOCKOPT and the bit `freebind` of its first byte.
const SOCKOPT: u16 = 22;
const FREEBIND: u8 = 1 << 2;
/// IP_MULTICAST_LOOP there, by which a listener shows that it does not defer: TCP has no use for
/// it, and the kernel does not tell of TCP_DEFER_ACCEPT.
const MULTICAST_LOOP: u8 = 1 << 4;
/// INET_DIAG_SKV6ONLY.
const SKV6ONLY: u16 = 11;
/// INET_DIAG_SKMEMINFO, the position of SK_MEMINFO_RCVBUF in it, and the bit that requests it.
const SKMEMINFO: u16 = 7;
const RCVBUF_AT: usize = 4;
const ASK_SKMEMINFO: u8 = 1 << (SKMEMINFO - 1);

/// A socket that intends to receive on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Intent {
    pub(super) ip: IpAddr,
    pub(super) is_v6_only: bool,
    /// Connections that may wait at a listener.
    pub(super) backlog: u32,
    /// SO_RCVBUF, as the kernel counts.
    pub(super) rcvbuf: u32,
    /// TCP_DEFER_ACCEPT.
    pub(super) is_deferring: bool,
    /// The interface that it is bound to (SO_BINDTODEVICE); 0 = none.
    device: u32,
}

impl Intent {
    pub(super) fn takes(&self, ip: IpAddr) -> bool {
        match self.ip {
            IpAddr::V4(own) => ip.is_ipv4() && (own.is_unspecified() || own == ip),
            IpAddr::V6(own) if own.is_unspecified() => ip.is_ipv6() || !self.is_v6_only,
            IpAddr::V6(_) => self.ip == ip,
        }
    }
}

type Ports = HashMap<u16, Vec<Intent>>;

/// The kernel's last answer about such sockets of one protocol.
#[derive(Debug)]
pub(super) struct Intents {
    proto: Transport,
    ports: Ports,
    asked_ns: Option<u64>,
    /// Number of times that it may be asked before an interval is over.
    spare: u64,
    /// Links of the stack, each with its interface's number.
    links: Vec<(u16, u32)>,
}

impl Intents {
    pub(super) fn new(proto: Transport) -> Intents {
        Intents {
            proto,
            ports: Ports::new(),
            asked_ns: None,
            spare: BURST,
            links: Vec::new(),
        }
    }

    pub(super) fn set_links(&mut self, state: &NetworkState) {
        let links = state.interfaces.iter().map(|it| (it.link, it.index));
        self.links = links.collect();
    }

    /// The choice of a link that a socket has made, as [`Choice::link`].
    pub(super) fn link_of(&self, intent: &Intent) -> u16 {
        choice_of(&self.links, intent)
    }

    /// Returns whether a socket intends to receive on this port, at any address.
    pub(super) fn has_port(&mut self, port: u16, now: u64) -> bool {
        self.refresh(now, |ports| ports.contains_key(&port));
        self.ports.contains_key(&port)
    }

    /// Returns whether a socket on this port `is_it`, which also gets its choice of a link.
    pub(super) fn has(
        &mut self,
        port: u16,
        now: u64,
        is_it: impl Fn(&Intent, u16) -> bool,
    ) -> bool {
        let links = std::mem::take(&mut self.links);
        let of = |ports: &Ports| {
            let mut there = ports.get(&port).into_iter().flatten();
            there.any(|intent| is_it(intent, choice_of(&links, intent)))
        };
        self.refresh(now, of);
        let has = of(&self.ports);
        self.links = links;
        has
    }

    /// Returns the socket at this address that has made this choice of a link; of several the one
    /// that [`Self::find`] returns.
    pub(super) fn at(&mut self, local: SocketAddr, link: u16, now: u64) -> Option<Intent> {
        let of = |ports: &Ports, links: &[(u16, u32)]| {
            let mut intents = ports.get(&local.port())?.iter();
            let found = intents.rfind(|it| it.ip == local.ip() && choice_of(links, it) == link);
            found.copied()
        };
        let links = std::mem::take(&mut self.links);
        self.refresh(now, |ports| of(ports, &links).is_some());
        let found = of(&self.ports, &links);
        self.links = links;
        found
    }

    /// Asks for the sockets of this moment.
    pub(super) fn renew(&mut self, now: u64) {
        self.refresh(now, |_| false);
    }

    /// Returns the socket that intends to receive at this address on a link; one that is bound to
    /// the link comes before others.
    pub(super) fn find(&mut self, at: SocketAddr, link: u16, now: u64) -> Option<Intent> {
        let known = self.links.iter().find(|(number, _)| *number == link);
        let index = known.map_or(0, |(_, index)| *index);
        let of = |ports: &Ports| {
            let intents = ports.get(&at.port())?.iter();
            let admits = |it: &&Intent| it.device == 0 || it.device == index;
            let hearing = intents.filter(|it| it.takes(at.ip())).filter(admits);
            hearing.max_by_key(|it| it.device != 0).copied()
        };
        self.refresh(now, |ports| of(ports).is_some());
        of(&self.ports)
    }

    fn refresh(&mut self, now: u64, has: impl Fn(&Ports) -> bool) {
        let age_ns = self.asked_ns.map(|asked| now.wrapping_sub(asked));
        let is_fresh = |limit_ns| age_ns.is_some_and(|age_ns| age_ns < limit_ns);
        if is_fresh(if has(&self.ports) { FRESH_NS } else { 1 }) {
            return;
        }
        if is_fresh(NO_FRESH_NS) {
            let Some(spare) = self.spare.checked_sub(1) else {
                return;
            };
            self.spare = spare;
        } else {
            let intervals = age_ns.map_or(BURST, |age_ns| age_ns / NO_FRESH_NS);
            self.spare = BURST.min(self.spare.saturating_add(intervals - 1));
        }
        self.asked_ns = Some(now);
        self.ports.clear();
        for family in [libc::AF_INET, libc::AF_INET6] {
            // Without an answer the SYN is reset, as for any closed port.
            let _ = ask(self.proto, family as u8, &mut self.ports);
        }
    }
}

fn choice_of(links: &[(u16, u32)], intent: &Intent) -> u16 {
    let found = links.iter().find(|(_, index)| *index == intent.device);
    let found = found.filter(|_| intent.device != 0);
    found.map_or(0, |(link, _)| Choice::link_of(*link))
}

fn request(proto: Transport, family: u8) -> Request {
    let (number, states) = match proto {
        Transport::Tcp => (libc::IPPROTO_TCP, STATE_LISTEN),
        Transport::Udp => (libc::IPPROTO_UDP, STATE_CLOSE),
    };
    let mut fixed = [0; REQUEST];
    fixed[0] = family;
    fixed[1] = number as u8;
    fixed[2] = ASK_SKMEMINFO;
    fixed[4..8].copy_from_slice(&states.to_ne_bytes());
    Request::about_sockets(&fixed)
}

fn ask(proto: Transport, family: u8, ports: &mut Ports) -> io::Result<()> {
    netlink::dump(request(proto, family), &mut |body| {
        if let Some((port, intent)) = read_intent(body)
            && ports.len() < SOCKETS_MAX
        {
            ports.entry(port).or_default().push(intent);
        }
    })
}

/// Returns the port of a socket, if it has IP_FREEBIND, and its intent there.
fn read_intent(body: &[u8]) -> Option<(u16, Intent)> {
    let port = u16::from_be_bytes([*body.get(4)?, *body.get(5)?]);
    let address: [u8; 16] = body.get(8..24)?.try_into().ok()?;
    let ip = match i32::from(*body.first()?) {
        libc::AF_INET => Ipv4Addr::new(address[0], address[1], address[2], address[3]).into(),
        _ => Ipv6Addr::from(address).to_canonical(),
    };
    let mut intent = Intent {
        ip,
        is_v6_only: false,
        backlog: u32::from_ne_bytes(body.get(BACKLOG_AT..BACKLOG_AT + 4)?.try_into().ok()?),
        rcvbuf: 0,
        is_deferring: false,
        device: u32::from_ne_bytes(body.get(DEVICE_AT..DEVICE_AT + 4)?.try_into().ok()?),
    };
    let mut has_freebind = false;
    for (kind, value) in netlink::attributes(body.get(ANSWER..)?) {
        match kind {
            SOCKOPT => {
                has_freebind = value.first()? & FREEBIND != 0;
                intent.is_deferring = value.first()? & MULTICAST_LOOP == 0;
            }
            SKV6ONLY => intent.is_v6_only = *value.first()? != 0,
            SKMEMINFO => {
                let word = value.get(RCVBUF_AT..RCVBUF_AT + 4)?;
                intent.rcvbuf = u32::from_ne_bytes(word.try_into().ok()?);
            }
            _ => {}
        }
    }
    has_freebind.then_some((port, intent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
    use std::net::SocketAddrV4;

    fn socket(proto: Transport, is_free: bool) -> (std::os::fd::OwnedFd, u16) {
        let kind = match proto {
            Transport::Tcp => SocketType::STREAM,
            Transport::Udp => SocketType::DGRAM,
        };
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, kind, flags, None).unwrap();
        sockopt::set_ip_freebind(&socket, is_free).unwrap();
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        if proto == Transport::Tcp {
            listen(&socket, 7).unwrap();
        }
        let name = rustix::net::getsockname(&socket).unwrap();
        let port = SocketAddrV4::try_from(name).unwrap().port();
        (socket, port)
    }

    #[test]
    fn sockets_with_freebind_are_found_and_others_are_not() {
        for proto in [Transport::Tcp, Transport::Udp] {
            let (_free, free_port) = socket(proto, true);
            let (_plain, plain_port) = socket(proto, false);
            let mut ports = Ports::new();
            ask(proto, libc::AF_INET as u8, &mut ports).unwrap();
            let found = ports[&free_port][0];
            assert!(found.rcvbuf > 0);
            assert!(proto == Transport::Udp || found.backlog == 7);
            assert!(found.takes(Ipv4Addr::LOCALHOST.into()));
            assert!(!found.takes(Ipv4Addr::new(10, 0, 0, 1).into()));
            assert!(!ports.contains_key(&plain_port));
        }
    }

    #[test]
    fn a_socket_is_found_as_soon_as_it_listens_unless_very_many_are_looked_for() {
        let mut intents = Intents::new(Transport::Tcp);
        let there = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        assert_eq!(intents.find(there(1), 0, 5), None);
        let (_first, port) = socket(Transport::Tcp, true);
        assert!(intents.find(there(port), 0, 6).is_some());
        for now in 7..7 + BURST {
            assert_eq!(intents.find(there(1), 0, now), None);
        }
        let (_second, port) = socket(Transport::Tcp, true);
        let last = 6 + BURST - 1;
        assert_eq!(intents.find(there(port), 0, last + 1), None);
        assert!(intents.find(there(port), 0, last + NO_FRESH_NS).is_some());
        let (_third, port) = socket(Transport::Tcp, true);
        let again = last + 4 * NO_FRESH_NS;
        assert_eq!(intents.find(there(1), 0, again), None);
        let (_fourth, other) = socket(Transport::Tcp, true);
        assert!(intents.find(there(port), 0, again + 1).is_some());
        assert!(intents.find(there(other), 0, again + 1).is_some());
    }

    #[test]
    fn wildcards_cover_their_family_and_ipv6_both_unless_v6only() {
        let of = |ip: IpAddr, is_v6_only: bool| Intent {
            ip,
            is_v6_only,
            backlog: 0,
            rcvbuf: 0,
            is_deferring: false,
            device: 0,
        };
        let (v4, v6) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([1u16; 8]));
        let any4 = of(Ipv4Addr::UNSPECIFIED.into(), false);
        assert!(any4.takes(v4) && !any4.takes(v6));
        let any6 = of(Ipv6Addr::UNSPECIFIED.into(), false);
        assert!(any6.takes(v4) && any6.takes(v6));
        assert!(!of(Ipv6Addr::UNSPECIFIED.into(), true).takes(v4));
    }

    #[test]
    fn truncated_answers_name_no_socket() {
        assert_eq!(read_intent(&[0; ANSWER]), None);
        assert_eq!(read_intent(&[9; ANSWER + 5]), None);
    }
}
