//! Commands from a program to its engine.

use core::time::Duration;
use std::net::SocketAddr;

use slipstack_mem::PAYLOAD_WORDS;

use crate::addr::AddrWords;
use crate::groups::MulticastOption;
use crate::ids::{Kind, SockId};

/// How a program lets go of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseMode {
    /// Written data is delivered, then FIN.
    Orderly,
    /// RST at once.
    Abort,
    /// A connection that the program never took: another listener of the same address may have
    /// it; without one it is reset.
    Pass,
}

/// Which congestion control a connection runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    Cubic,
    NewReno,
    Dctcp,
    Bbr,
}

impl Congestion {
    pub const ALL: [Self; 4] = [Self::Cubic, Self::NewReno, Self::Dctcp, Self::Bbr];

    /// Linux's name (`TCP_CONGESTION`).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::NewReno => "reno",
            Self::Dctcp => "dctcp",
            Self::Bbr => "bbr",
        }
    }

    /// The word that travels.
    pub const fn code(self) -> u64 {
        self as u64
    }

    pub fn from_code(code: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// A socket option. `Duration`s travel in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOption {
    NoDelay(bool),
    Cork(bool),
    QuickAck(bool),
    KeepAlive {
        enabled: bool,
        idle: Duration,
        interval: Duration,
        probes: u8,
    },
    /// `None` switches it off.
    UserTimeout(Option<Duration>),
    RcvBuf(u32),
    SndBuf(u32),
    Congestion(Congestion),
    MaxSeg(u16),
    /// `None` = the default.
    Linger2(Option<Duration>),
    /// Type of service of IPv4 packets; the next two are for IPv6.
    Tos(u8),
    Ttl(u8),
    TosV6(u8),
    TtlV6(u8),
    Broadcast(bool),
    ReusePort(bool),
    /// Limit of a listener's connections whose data was taken with the SYN and whose handshake is
    /// not done.
    FastOpen(u32),
    /// Timeouts of a listener's SYN-ACK before an ACK without data opens a connection.
    DeferAccept(u8),
    /// An active open may put data into its SYN.
    FastOpenConnect(bool),
    /// Datagrams that came joined are delivered so.
    TakesJoined(bool),
    /// Path MTU discovery of datagrams, by Linux's numbers of IP_MTU_DISCOVER.
    MtuDiscovery(u8),
    /// Path MTU discovery of datagrams over IPv6.
    MtuDiscoveryV6(u8),
    Multicast(MulticastOption),
    /// Retransmissions of a SYN; 0 = the default.
    SynCount(u8),
    /// The window is never announced larger.
    WindowClamp(u32),
    /// Ports that may be picked, inclusive; 0 = no bound.
    PortRange(u16, u16),
    /// The mark by which rules choose a routing table.
    Mark(u32),
    /// The routing table; 0 = as the rules say.
    Table(u16),
    /// The VLAN that is left and heard by, plus one; 0 = any.
    Link(u16),
    /// Errors about datagrams over IPv4 (IPv6) are reported to unconnected sockets too.
    ReturnsV4(bool),
    ReturnsV6(bool),
}

/// A request of a program to its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Open {
        sock: SockId,
        kind: Kind,
    },
    /// Port 0 = pick one. Reply: [`crate::Reply::Bound`].
    Bind {
        sock: SockId,
        addr: SocketAddr,
        reuse_addr: bool,
        reuse_port: bool,
        /// [::] does not take IPv4 in.
        v6_only: bool,
    },
    /// Reply: [`crate::Reply::Bound`]. On a listening socket it changes the backlog.
    Listen {
        sock: SockId,
        backlog: u32,
    },
    Unlisten {
        sock: SockId,
    },
    /// Somebody waits on a listener whose connections went to others: it takes new ones again.
    Resume {
        sock: SockId,
    },
    /// Reply: [`crate::Reply::Bound`] with the local address once the attempt is under way; how
    /// it ends is told by a change of state.
    Connect {
        sock: SockId,
        remote: SocketAddr,
    },
    /// Bytes or datagrams are in the send ring.
    Send {
        sock: SockId,
    },
    /// The bytes before stream offset `upto` are urgent (MSG_OOB). Comes before they are in the
    /// ring.
    Urgent {
        sock: SockId,
        upto: u64,
    },
    /// How far the bytes have left is to be told once more (TCP_NOTSENT_LOWAT).
    TellSent {
        sock: SockId,
    },
    /// The program has read past the point where the engine wants to know.
    Consumed {
        sock: SockId,
    },
    /// FIN after what was written. `is_full`: the program has shut its reading side too.
    Shutdown {
        sock: SockId,
        is_full: bool,
    },
    /// `unread`: received bytes were not read.
    Close {
        sock: SockId,
        mode: CloseMode,
        unread: bool,
    },
    /// Reply: [`crate::Reply::Done`].
    SetOption {
        sock: SockId,
        option: SocketOption,
    },
    /// Reply: [`crate::Reply::Info`].
    Info {
        sock: SockId,
    },
    /// `None` dissolves the association. Reply: [`crate::Reply::Bound`].
    UdpConnect {
        sock: SockId,
        remote: Option<SocketAddr>,
    },
    /// Offers the connection to any process that knows the key. Reply: [`crate::Reply::Done`].
    Offer {
        sock: SockId,
        key: u128,
    },
    /// The connection that another program has offered becomes this socket's. Reply:
    /// [`crate::Reply::Done`].
    Claim {
        sock: SockId,
        key: u128,
    },
    /// The program ends in order.
    Goodbye,
}

/// Where the reply to a command is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) slot: u16,
    pub(crate) sequence: u32,
}

impl Ticket {
    /// No reply is wanted.
    pub const NONE: Ticket = Ticket {
        slot: u16::MAX,
        sequence: 0,
    };
}

const OPEN: u8 = 1;
const BIND: u8 = 2;
const LISTEN: u8 = 3;
const UNLISTEN: u8 = 4;
const CONNECT: u8 = 5;
const SEND: u8 = 6;
const CONSUMED: u8 = 7;
const SHUTDOWN: u8 = 8;
const CLOSE: u8 = 9;
const SET_OPTION: u8 = 10;
const INFO: u8 = 11;
const UDP_CONNECT: u8 = 12;
const GOODBYE: u8 = 13;
const RESUME: u8 = 14;
const URGENT: u8 = 15;
const TELL_SENT: u8 = 16;
const OFFER: u8 = 17;
const CLAIM: u8 = 18;

type Payload = [u64; PAYLOAD_WORDS];

fn with_addr(addr: SocketAddr) -> [u64; 3] {
    let words = AddrWords::encode(addr);
    [words.ip[0], words.ip[1], u64::from(words.port)]
}

fn addr_of(payload: &Payload) -> SocketAddr {
    AddrWords {
        ip: [payload[2], payload[3]],
        port: payload[4] as u16,
    }
    .decode()
}

fn with_key(key: u128) -> [u64; 4] {
    [key as u64, (key >> 64) as u64, 0, 0]
}

fn key_of(payload: &Payload) -> u128 {
    u128::from(payload[2]) | u128::from(payload[3]) << 64
}

impl Command {
    #[inline]
    pub(crate) fn encode(&self, ticket: Ticket) -> Payload {
        let (code, flags, sock, args) = self.parts();
        let sock = sock.unwrap_or(SockId {
            index: 0,
            generation: 0,
        });
        [
            u64::from(code)
                | u64::from(flags) << 8
                | u64::from(ticket.slot) << 16
                | u64::from(sock.index) << 32,
            u64::from(sock.generation) | u64::from(ticket.sequence) << 32,
            args[0],
            args[1],
            args[2],
            args[3],
            0,
        ]
    }

    #[inline]
    fn parts(&self) -> (u8, u8, Option<SockId>, [u64; 4]) {
        const ZERO: [u64; 4] = [0; 4];
        match *self {
            Command::Send { sock } => (SEND, 0, Some(sock), ZERO),
            Command::Consumed { sock } => (CONSUMED, 0, Some(sock), ZERO),
            Command::Open { sock, kind } => (OPEN, u8::from(kind == Kind::Udp), Some(sock), ZERO),
            Command::Bind {
                sock,
                addr,
                reuse_addr,
                reuse_port,
                v6_only,
            } => {
                let flags =
                    u8::from(reuse_addr) | u8::from(reuse_port) << 1 | u8::from(v6_only) << 2;
                let [a, b, c] = with_addr(addr);
                (BIND, flags, Some(sock), [a, b, c, 0])
            }
            Command::Listen { sock, backlog } => {
                (LISTEN, 0, Some(sock), [u64::from(backlog), 0, 0, 0])
            }
            Command::Unlisten { sock } => (UNLISTEN, 0, Some(sock), ZERO),
            Command::Resume { sock } => (RESUME, 0, Some(sock), ZERO),
            Command::Connect { sock, remote } => {
                let [a, b, c] = with_addr(remote);
                (CONNECT, 0, Some(sock), [a, b, c, 0])
            }
            Command::Shutdown { sock, is_full } => (SHUTDOWN, u8::from(is_full), Some(sock), ZERO),
            Command::Close { sock, mode, unread } => {
                let flags = u8::from(mode == CloseMode::Abort)
                    | u8::from(unread) << 1
                    | u8::from(mode == CloseMode::Pass) << 2;
                (CLOSE, flags, Some(sock), ZERO)
            }
            Command::SetOption { sock, option } => {
                let (code, args) = option.encode();
                (SET_OPTION, code, Some(sock), args)
            }
            Command::Info { sock } => (INFO, 0, Some(sock), ZERO),
            Command::UdpConnect { sock, remote } => {
                let [a, b, c] = remote.map_or([0; 3], with_addr);
                (
                    UDP_CONNECT,
                    u8::from(remote.is_some()),
                    Some(sock),
                    [a, b, c, 0],
                )
            }
            Command::Urgent { sock, upto } => (URGENT, 0, Some(sock), [upto, 0, 0, 0]),
            Command::TellSent { sock } => (TELL_SENT, 0, Some(sock), ZERO),
            Command::Offer { sock, key } => (OFFER, 0, Some(sock), with_key(key)),
            Command::Claim { sock, key } => (CLAIM, 0, Some(sock), with_key(key)),
            Command::Goodbye => (GOODBYE, 0, None, ZERO),
        }
    }

    /// `None` for what no program of this version sends.
    pub(crate) fn decode(payload: &Payload) -> Option<(Command, Ticket)> {
        let sock = SockId {
            index: (payload[0] >> 32) as u32,
            generation: payload[1] as u32,
        };
        let ticket = Ticket {
            slot: (payload[0] >> 16) as u16,
            sequence: (payload[1] >> 32) as u32,
        };
        let flags = (payload[0] >> 8) as u8;
        let command = match payload[0] as u8 {
            SEND => Command::Send { sock },
            CONSUMED => Command::Consumed { sock },
            OPEN => Command::Open {
                sock,
                kind: if flags & 1 == 1 { Kind::Udp } else { Kind::Tcp },
            },
            BIND => Command::Bind {
                sock,
                addr: addr_of(payload),
                reuse_addr: flags & 1 == 1,
                reuse_port: flags & 2 == 2,
                v6_only: flags & 4 == 4,
            },
            LISTEN => Command::Listen {
                sock,
                backlog: payload[2] as u32,
            },
            UNLISTEN => Command::Unlisten { sock },
            RESUME => Command::Resume { sock },
            CONNECT => Command::Connect {
                sock,
                remote: addr_of(payload),
            },
            SHUTDOWN => Command::Shutdown {
                sock,
                is_full: flags & 1 != 0,
            },
            CLOSE => Command::Close {
                sock,
                mode: CloseMode::of_flags(flags),
                unread: flags & UNREAD == UNREAD,
            },
            SET_OPTION => Command::SetOption {
                sock,
                option: SocketOption::decode(flags, &payload[2..6])?,
            },
            INFO => Command::Info { sock },
            UDP_CONNECT => Command::UdpConnect {
                sock,
                remote: (flags & 1 == 1).then(|| addr_of(payload)),
            },
            URGENT => Command::Urgent {
                sock,
                upto: payload[2],
            },
            TELL_SENT => Command::TellSent { sock },
            OFFER => Command::Offer {
                sock,
                key: key_of(payload),
            },
            CLAIM => Command::Claim {
                sock,
                key: key_of(payload),
            },
            GOODBYE => Command::Goodbye,
            _ => return None,
        };
        Some((command, ticket))
    }
}

/// A command as it lies in the ring.
#[derive(Clone, Copy, Debug)]
pub struct Coded(pub(crate) Payload);

/// The commands of a connection's everyday life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Everyday {
    Send {
        sock: SockId,
    },
    Consumed {
        sock: SockId,
    },
    Close {
        sock: SockId,
        mode: CloseMode,
        unread: bool,
    },
}

impl Coded {
    /// `None`: another one, or none at all.
    #[inline]
    pub fn everyday(&self) -> Option<Everyday> {
        let [first, second, ..] = self.0;
        let sock = SockId {
            index: (first >> 32) as u32,
            generation: second as u32,
        };
        let flags = (first >> 8) as u8;
        match first as u8 {
            SEND => Some(Everyday::Send { sock }),
            CONSUMED => Some(Everyday::Consumed { sock }),
            CLOSE => Some(Everyday::Close {
                sock,
                mode: CloseMode::of_flags(flags),
                unread: flags & UNREAD == UNREAD,
            }),
            _ => None,
        }
    }
}

/// The program leaves bytes unread behind.
const UNREAD: u8 = 2;

impl CloseMode {
    #[inline]
    fn of_flags(flags: u8) -> CloseMode {
        match (flags & 1, flags & 4) {
            (1, _) => CloseMode::Abort,
            (_, 4) => CloseMode::Pass,
            _ => CloseMode::Orderly,
        }
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis().min(u128::from(u32::MAX)) as u64
}

/// `None` is told from zero by a bit of its own.
fn optional_millis(duration: Option<Duration>) -> u64 {
    duration.map_or(1 << 32, millis)
}

fn duration(word: u64) -> Duration {
    Duration::from_millis(word & u64::from(u32::MAX))
}

fn optional_duration(word: u64) -> Option<Duration> {
    (word >> 32 == 0).then(|| duration(word))
}

impl SocketOption {
    fn encode(self) -> (u8, [u64; 4]) {
        let one = |code: u8, value: u64| (code, [value, 0, 0, 0]);
        match self {
            SocketOption::NoDelay(on) => one(1, u64::from(on)),
            SocketOption::Cork(on) => one(2, u64::from(on)),
            SocketOption::QuickAck(on) => one(3, u64::from(on)),
            SocketOption::KeepAlive {
                enabled,
                idle,
                interval,
                probes,
            } => (
                4,
                [
                    u64::from(enabled),
                    millis(idle),
                    millis(interval),
                    u64::from(probes),
                ],
            ),
            SocketOption::UserTimeout(timeout) => one(5, optional_millis(timeout)),
            SocketOption::RcvBuf(bytes) => one(6, u64::from(bytes)),
            SocketOption::SndBuf(bytes) => one(7, u64::from(bytes)),
            SocketOption::Congestion(kind) => one(8, kind.code()),
            SocketOption::MaxSeg(bytes) => one(9, u64::from(bytes)),
            SocketOption::Linger2(time) => one(10, optional_millis(time)),
            SocketOption::Tos(tos) => one(11, u64::from(tos)),
            SocketOption::Ttl(ttl) => one(12, u64::from(ttl)),
            SocketOption::Broadcast(on) => one(13, u64::from(on)),
            SocketOption::ReusePort(on) => one(14, u64::from(on)),
            SocketOption::FastOpen(queue) => one(15, u64::from(queue)),
            SocketOption::FastOpenConnect(on) => one(16, u64::from(on)),
            SocketOption::TakesJoined(on) => one(17, u64::from(on)),
            SocketOption::MtuDiscovery(code) => one(18, u64::from(code)),
            SocketOption::MtuDiscoveryV6(code) => one(19, u64::from(code)),
            SocketOption::Multicast(option) => option.encode(),
            SocketOption::ReturnsV4(on) => one(20, u64::from(on)),
            SocketOption::ReturnsV6(on) => one(21, u64::from(on)),
            SocketOption::TosV6(tos) => one(22, u64::from(tos)),
            SocketOption::TtlV6(ttl) => one(23, u64::from(ttl)),
            SocketOption::DeferAccept(tries) => one(24, u64::from(tries)),
            SocketOption::SynCount(tries) => one(64, u64::from(tries)),
            SocketOption::WindowClamp(bytes) => one(65, u64::from(bytes)),
            SocketOption::PortRange(lo, hi) => one(66, u64::from(lo) | u64::from(hi) << 16),
            SocketOption::Mark(mark) => one(67, u64::from(mark)),
            SocketOption::Table(table) => one(68, u64::from(table)),
            SocketOption::Link(link) => one(69, u64::from(link)),
        }
    }

    fn decode(code: u8, args: &[u64]) -> Option<SocketOption> {
        let [first, second, third, fourth] = *args else {
            return None;
        };
        Some(match code {
            1 => SocketOption::NoDelay(first != 0),
            2 => SocketOption::Cork(first != 0),
            3 => SocketOption::QuickAck(first != 0),
            4 => SocketOption::KeepAlive {
                enabled: first != 0,
                idle: duration(second),
                interval: duration(third),
                probes: fourth as u8,
            },
            5 => SocketOption::UserTimeout(optional_duration(first)),
            6 => SocketOption::RcvBuf(first as u32),
            7 => SocketOption::SndBuf(first as u32),
            8 => SocketOption::Congestion(Congestion::from_code(first)?),
            9 => SocketOption::MaxSeg(first as u16),
            10 => SocketOption::Linger2(optional_duration(first)),
            11 => SocketOption::Tos(first as u8),
            12 => SocketOption::Ttl(first as u8),
            13 => SocketOption::Broadcast(first != 0),
            14 => SocketOption::ReusePort(first != 0),
            15 => SocketOption::FastOpen(first as u32),
            16 => SocketOption::FastOpenConnect(first != 0),
            17 => SocketOption::TakesJoined(first != 0),
            18 => SocketOption::MtuDiscovery(first as u8),
            19 => SocketOption::MtuDiscoveryV6(first as u8),
            20 => SocketOption::ReturnsV4(first != 0),
            21 => SocketOption::ReturnsV6(first != 0),
            22 => SocketOption::TosV6(first as u8),
            23 => SocketOption::TtlV6(first as u8),
            24 => SocketOption::DeferAccept(first as u8),
            64 => SocketOption::SynCount(first as u8),
            65 => SocketOption::WindowClamp(first as u32),
            66 => SocketOption::PortRange(first as u16, (first >> 16) as u16),
            67 => SocketOption::Mark(first as u32),
            68 => SocketOption::Table(first as u16),
            69 => SocketOption::Link(first as u16),
            code => SocketOption::Multicast(MulticastOption::decode(code, args.try_into().ok()?)?),
        })
    }
}

#[cfg(test)]
mod tests;
