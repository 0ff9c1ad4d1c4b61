//! Commands from a program to its engine.

use std::net::SocketAddr;

use slipstack_mem::PAYLOAD_WORDS;
use slipstack_terms::{CloseMode, SocketOption, Transport, WORDS};

use crate::addr::AddrWords;
use crate::ids::SockId;

/// A request of a program to its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Open {
        sock: SockId,
        kind: Transport,
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
    /// A thread waits on a listener whose connections went to others: it takes new ones again.
    Resume {
        sock: SockId,
    },
    /// Reply: [`crate::Reply::Bound`] with the local address once the attempt is in progress; its
    /// result is a change of state.
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
    /// The bytes before stream offset `upto` end a record (MSG_EOR): the next ones do not join
    /// their segment. Comes before they are in the ring.
    Record {
        sock: SockId,
        upto: u64,
    },
    /// `len` bytes of the stream from offset `at` on are not in the ring but at the offset `place`
    /// of the region. Sent before the head passes them.
    Extent {
        sock: SockId,
        at: u64,
        place: u64,
        len: u64,
    },
    /// Requests one more report when bytes have been sent (TCP_NOTSENT_LOWAT).
    TellSent {
        sock: SockId,
    },
    /// The program has read past the point where the engine wants to know.
    Consumed {
        sock: SockId,
    },
    /// Sends FIN after the written bytes. `is_full`: the program has shut its reading side too.
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
    /// Takes the headers of the SYN that opened a connection. Reply: [`crate::Reply::Syn`], or
    /// [`crate::Reply::Done`] if there are none.
    TakeSyn {
        sock: SockId,
    },
    /// Asks whether connections, or the TIME-WAIT of some, have this local port. Reply:
    /// [`crate::Reply::Done`] if none has, else the refusal `AddrInUse`.
    FindPort {
        local: SocketAddr,
        v6_only: bool,
    },
    /// `None` dissolves the association. Reply: [`crate::Reply::Bound`].
    UdpConnect {
        sock: SockId,
        remote: Option<SocketAddr>,
    },
    /// Offers the connection to any process that knows the key, unless its program has written
    /// more than `upto`, to which the copy goes that the other process has. Reply:
    /// [`crate::Reply::Done`].
    Offer {
        sock: SockId,
        key: u128,
        upto: Option<u64>,
    },
    /// The connection that another program has offered becomes this socket's, whose send ring has
    /// the bytes that the peer had not acknowledged. Reply: [`crate::Reply::Done`].
    Claim {
        sock: SockId,
        key: u128,
    },
    /// The program ends in order.
    EndSession,
}

/// Destination of the reply to a command.
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
const END_SESSION: u8 = 13;
const RESUME: u8 = 14;
const URGENT: u8 = 15;
const TELL_SENT: u8 = 16;
const OFFER: u8 = 17;
const CLAIM: u8 = 18;
const EXTENT: u8 = 19;
const FIND_PORT: u8 = 20;
const TAKE_SYN: u8 = 21;
const RECORD: u8 = 22;

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

fn with_key(key: u128, upto: Option<u64>) -> [u64; WORDS] {
    let upto = upto.unwrap_or_default();
    [key as u64, (key >> 64) as u64, upto, 0, 0]
}

fn key_of(payload: &Payload) -> u128 {
    u128::from(payload[2]) | u128::from(payload[3]) << 64
}

fn ticket_of(payload: &Payload) -> Ticket {
    Ticket {
        slot: (payload[0] >> 16) as u16,
        sequence: (payload[1] >> 32) as u32,
    }
}

fn find_port_of(flags: u8, payload: &Payload) -> Command {
    Command::FindPort {
        local: addr_of(payload),
        v6_only: flags & 1 == 1,
    }
}

fn offer_of(sock: SockId, flags: u8, payload: &Payload) -> Command {
    let upto = (flags & 1 == 1).then_some(payload[4]);
    let key = key_of(payload);
    Command::Offer { sock, key, upto }
}

fn extent_of(sock: SockId, payload: &Payload) -> Command {
    let [_, _, at, place, len, ..] = *payload;
    Command::Extent {
        sock,
        at,
        place,
        len,
    }
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
            args[4],
        ]
    }

    #[inline]
    fn parts(&self) -> (u8, u8, Option<SockId>, [u64; WORDS]) {
        const ZERO: [u64; WORDS] = [0; WORDS];
        match *self {
            Command::Send { sock } => (SEND, 0, Some(sock), ZERO),
            Command::Consumed { sock } => (CONSUMED, 0, Some(sock), ZERO),
            Command::Open { sock, kind } => {
                (OPEN, u8::from(kind == Transport::Udp), Some(sock), ZERO)
            }
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
                (BIND, flags, Some(sock), [a, b, c, 0, 0])
            }
            Command::Listen { sock, backlog } => {
                (LISTEN, 0, Some(sock), [u64::from(backlog), 0, 0, 0, 0])
            }
            Command::Unlisten { sock } => (UNLISTEN, 0, Some(sock), ZERO),
            Command::Resume { sock } => (RESUME, 0, Some(sock), ZERO),
            Command::Connect { sock, remote } => {
                let [a, b, c] = with_addr(remote);
                (CONNECT, 0, Some(sock), [a, b, c, 0, 0])
            }
            Command::Shutdown { sock, is_full } => (SHUTDOWN, u8::from(is_full), Some(sock), ZERO),
            Command::Close { sock, mode, unread } => {
                let flags = u8::from(mode == CloseMode::Abort)
                    | u8::from(unread) << 1
                    | u8::from(mode == CloseMode::Pass) << 2;
                (CLOSE, flags, Some(sock), ZERO)
            }
            Command::SetOption { sock, option } => {
                let (number, args) = option.encode();
                (SET_OPTION, number, Some(sock), args)
            }
            Command::Info { sock } => (INFO, 0, Some(sock), ZERO),
            Command::TakeSyn { sock } => (TAKE_SYN, 0, Some(sock), ZERO),
            Command::FindPort { local, v6_only } => {
                let [a, b, c] = with_addr(local);
                (FIND_PORT, u8::from(v6_only), None, [a, b, c, 0, 0])
            }
            Command::UdpConnect { sock, remote } => {
                let [a, b, c] = remote.map_or([0; 3], with_addr);
                let flags = u8::from(remote.is_some());
                (UDP_CONNECT, flags, Some(sock), [a, b, c, 0, 0])
            }
            Command::Urgent { sock, upto } => (URGENT, 0, Some(sock), [upto, 0, 0, 0, 0]),
            Command::Record { sock, upto } => (RECORD, 0, Some(sock), [upto, 0, 0, 0, 0]),
            Command::Extent {
                sock,
                at,
                place,
                len,
            } => (EXTENT, 0, Some(sock), [at, place, len, 0, 0]),
            Command::TellSent { sock } => (TELL_SENT, 0, Some(sock), ZERO),
            Command::Offer { sock, key, upto } => {
                let flags = u8::from(upto.is_some());
                (OFFER, flags, Some(sock), with_key(key, upto))
            }
            Command::Claim { sock, key } => (CLAIM, 0, Some(sock), with_key(key, None)),
            Command::EndSession => (END_SESSION, 0, None, ZERO),
        }
    }

    /// Returns `None` for a payload that no program of this version sends.
    pub(crate) fn decode(payload: &Payload) -> Option<(Command, Ticket)> {
        let sock = SockId {
            index: (payload[0] >> 32) as u32,
            generation: payload[1] as u32,
        };
        let ticket = ticket_of(payload);
        let flags = (payload[0] >> 8) as u8;
        let [_, _, args @ ..] = *payload;
        let (key, upto) = (key_of(payload), payload[2]);
        let command = match payload[0] as u8 {
            SEND => Command::Send { sock },
            CONSUMED => Command::Consumed { sock },
            OPEN => Command::Open {
                sock,
                kind: if flags & 1 == 1 {
                    Transport::Udp
                } else {
                    Transport::Tcp
                },
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
                mode: close_mode(flags),
                unread: flags & UNREAD == UNREAD,
            },
            SET_OPTION => Command::SetOption {
                sock,
                option: SocketOption::decode(flags, args)?,
            },
            INFO => Command::Info { sock },
            TAKE_SYN => Command::TakeSyn { sock },
            FIND_PORT => find_port_of(flags, payload),
            UDP_CONNECT => {
                let remote = (flags & 1 == 1).then(|| addr_of(payload));
                Command::UdpConnect { sock, remote }
            }
            URGENT => Command::Urgent { sock, upto },
            RECORD => Command::Record { sock, upto },
            EXTENT => extent_of(sock, payload),
            TELL_SENT => Command::TellSent { sock },
            OFFER => offer_of(sock, flags, payload),
            CLAIM => Command::Claim { sock, key },
            END_SESSION => Command::EndSession,
            _ => return None,
        };
        Some((command, ticket))
    }
}

/// A command in its encoded form.
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
    /// Returns the command if it is one of the frequent ones.
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
                mode: close_mode(flags),
                unread: flags & UNREAD == UNREAD,
            }),
            _ => None,
        }
    }
}

/// The program leaves bytes unread behind.
const UNREAD: u8 = 2;

#[inline]
fn close_mode(flags: u8) -> CloseMode {
    match (flags & 1, flags & 4) {
        (1, _) => CloseMode::Abort,
        (_, 4) => CloseMode::Pass,
        _ => CloseMode::Orderly,
    }
}

#[cfg(test)]
mod tests;
