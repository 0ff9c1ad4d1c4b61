//! The stack's output and requests to its environment. The stack itself performs no input or
//! output.
//!
//! Events are also the asynchronous reports of RFC 9293 3.9.1.8.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU16;

pub use slipstack_wire::{Gso, PartialChecksum, RxChecksum, RxMeta, TxOffload};

use crate::chooser::Member;
use crate::error::Reason;
use crate::fib::Choice;
use crate::groups::GroupFilter;
use crate::ids::{ConnId, ListenerId, UdpId};
use crate::ip::{IcmpDetails, IpMeta, LinkedGroup};
use crate::options::DEFAULT_TTL;

/// The engine's (or simulator's) side. Calls come in the order in which things happened.
pub trait Effects {
    /// Sends a frame. One that finds no room is lost, as on a wire.
    fn transmit(&mut self, frame: FrameOut<'_>);

    /// Puts bytes of a connection's stream at `offset` (the first byte after SYN is 0), which may
    /// be beyond the in-order edge. They become readable by [`Event::Received`] only.
    /// `false` = no room: the segment is dropped without an ACK.
    fn store(&mut self, conn: ConnId, offset: u64, bytes: &[u8]) -> bool;

    /// Stores bytes that are still with the device. `false`: nothing has been stored, the segment
    /// comes again as a whole or is lost.
    fn fetch(&mut self, conn: ConnId, offset: u64, absent: Absent) -> bool {
        let _ = (conn, offset, absent);
        false
    }

    /// Stores in-order bytes and announces them to the program: `store`, then [`Event::Received`].
    #[inline(always)]
    fn deliver(&mut self, conn: ConnId, offset: u64, bytes: &[u8]) -> bool {
        let is_stored = self.store(conn, offset, bytes);
        if is_stored {
            let upto = offset + bytes.len() as u64;
            self.event(Event::Received { conn, upto });
        }
        is_stored
    }

    /// A datagram for a socket.
    fn datagram(&mut self, udp: UdpId, datagram: &DatagramIn<'_>);

    fn event(&mut self, event: Event);

    /// Reports the filter of a group that an engine receives on a link; its keeper reports it to
    /// the link.
    fn group(&mut self, group: LinkedGroup, filter: &GroupFilter) {
        let _ = (group, filter);
    }

    /// Returns the address of a neighbour that another stack has learnt and this one would have to
    /// resolve.
    fn find_neighbour(&self, ip: IpAddr) -> Option<[u8; 6]> {
        let _ = ip;
        None
    }

    /// Returns whether the answers to a connection from one of this stack's outgoing ports would go
    /// to another program, which has claimed the port or still has such a connection.
    fn is_elsewhere(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let _ = (local, remote);
        false
    }

    /// Reports a datagram of this socket, which has asked for errors, that came back.
    fn returned(&mut self, udp: UdpId, to: SocketAddr, reason: Reason, details: &IcmpDetails<'_>) {
        let _ = (udp, to, reason, details);
    }

    /// Returns whether the program has unread data. The stack is informed of reads only from time
    /// to time.
    fn has_unread(&mut self, conn: ConnId) -> bool {
        let _ = conn;
        false
    }

    /// A TCP segment for a flow and port that this stack does not know. Where several engines share
    /// an address, another one may: `true` = it goes there, and is not answered here. Resets come
    /// here too.
    fn stray(&mut self, ip: &IpMeta, segment: &[u8]) -> bool {
        let _ = (ip, segment);
        false
    }

    /// Takes a datagram for a port that no socket of this stack has, or to a multicast or broadcast
    /// address without a receiver. Returns `true` if it is passed on, so that its sender gets no
    /// error.
    fn stray_datagram(&mut self, datagram: &DatagramIn<'_>, is_to_group: bool) -> bool {
        let _ = (datagram, is_to_group);
        false
    }

    /// A datagram that the program of a SO_REUSEPORT group has chosen another stack's socket for.
    /// `false`: there is no way there.
    fn chosen_datagram(&mut self, member: Member, datagram: &DatagramIn<'_>) -> bool {
        let _ = (member, datagram);
        false
    }

    /// The length of the keys of a map that the program of a group refers to; `None`: it is not at
    /// hand.
    fn key_len(&self, map: u32) -> Option<usize> {
        let _ = map;
        None
    }

    /// Returns the value of such a map's element. That of a socket is its cookie.
    fn look_up(&mut self, map: u32, key: &[u8]) -> Option<Vec<u8>> {
        let _ = (map, key);
        None
    }

    /// The machine's clock, for such a program.
    fn monotonic_ns(&self) -> u64 {
        0
    }

    /// The number of the processor that runs the stack.
    fn processor(&self) -> u32 {
        0
    }
}

/// Payload of a frame of which the device has shown the beginning only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Absent {
    /// Offset in the frame.
    pub from: usize,
    /// 0 = the payload is at hand.
    pub len: usize,
}

/// A received datagram, with the fields of its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramIn<'a> {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub payload: &'a [u8],
    /// Type of service, or traffic class.
    pub tos: u8,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// The payload is that of several datagrams of this size, the last of which may be shorter.
    pub segment: Option<NonZeroU16>,
    /// The link by which it arrived ([`slipstack_wire::LinkId`]).
    pub link: u16,
    /// Each socket that takes its address receives it.
    pub is_to_group: bool,
    /// Another socket has received it before.
    pub is_copy: bool,
}

/// A datagram to send. The socket's options and the routes decide the fields it leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramOut<'a> {
    pub payload: &'a [u8],
    /// `None`: the connected peer.
    pub dst: Option<SocketAddr>,
    /// One of our addresses.
    pub src: Option<IpAddr>,
    pub tos: Option<u8>,
    pub ttl: Option<u8>,
    /// The payload leaves as several datagrams of this size, the last of which may be shorter.
    pub segment: Option<NonZeroU16>,
    /// The link by which it leaves, whatever the socket has selected.
    pub link: Option<u16>,
    /// The mark by which rules select its table, whatever the socket's is.
    pub mark: Option<u32>,
    /// The class plus one, whatever the socket's is; 0 = that of its type of service.
    pub class: Option<u8>,
}

impl<'a> DatagramOut<'a> {
    pub const fn new(dst: Option<SocketAddr>, payload: &'a [u8]) -> Self {
        Self {
            payload,
            dst,
            src: None,
            tos: None,
            ttl: None,
            segment: None,
            link: None,
            mark: None,
            class: None,
        }
    }
}

/// A frame to send.
#[derive(Clone, Copy, Debug)]
pub struct FrameOut<'a> {
    /// Ethernet header to transport header.
    pub header: &'a [u8],
    pub payload: Payload<'a>,
    pub offload: TxOffload,
    /// The destination is our own address: hand it back to the stack that serves it.
    pub local: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    None,
    Inline(&'a [u8]),
    /// Bytes of a connection's send ring. A frame that waited for its neighbour can name a
    /// connection that is gone meanwhile: it is then dropped.
    Stream {
        conn: ConnId,
        offset: u64,
        len: u32,
    },
}

impl Payload<'_> {
    #[inline]
    pub const fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Inline(bytes) => bytes.len(),
            Self::Stream { len, .. } => *len as usize,
        }
    }

    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The outcome of a connection's handshake, in three words, and what its program has chosen for its
/// packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionOrigin {
    /// Initial numbers: ours above, the peer's below.
    pub numbers: u64,
    /// Offset of our timestamps above, the peer's latest timestamp below.
    pub timestamps: u64,
    /// The peer's MSS in bits 16 to 31, flags in bits 0 to 15; the two window shifts in bits 32
    /// to 39. The rest is 0.
    pub terms: u64,
    pub choice: Choice,
    /// Type of service or traffic class, and time to live or hop limit.
    pub tos: u8,
    pub ttl: u8,
    /// The program's end resets it (SO_LINGER).
    pub resets_at_end: bool,
}

impl ConnectionOrigin {
    /// The three words of the handshake.
    #[inline]
    pub const fn words(&self) -> [u64; 3] {
        [self.numbers, self.timestamps, self.terms]
    }

    /// The program's choices in two words; zeros if it has chosen nothing.
    #[inline]
    pub const fn way(&self) -> [u64; 2] {
        let [ways, class] = self.choice.to_words();
        let ttl = self.ttl ^ DEFAULT_TTL;
        let end = (self.resets_at_end as u64) << 24;
        [
            ways,
            class | (self.tos as u64) << 8 | (ttl as u64) << 16 | end,
        ]
    }

    /// An origin from both; any words are possible.
    pub const fn of_words([numbers, timestamps, terms]: [u64; 3], way: [u64; 2]) -> Self {
        ConnectionOrigin {
            numbers,
            timestamps,
            terms,
            choice: Choice::of_words(way),
            tos: (way[1] >> 8) as u8,
            ttl: (way[1] >> 16) as u8 ^ DEFAULT_TTL,
            resets_at_end: way[1] >> 24 & 1 != 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The three-way handshake is done; the program has not accepted it yet.
    Accepted {
        listener: ListenerId,
        conn: ConnId,
        local: SocketAddr,
        remote: SocketAddr,
        /// As [`crate::Stack::tcp_origin`] returns it.
        origin: Option<ConnectionOrigin>,
    },
    /// An active open succeeded.
    Connected { conn: ConnId },
    /// An active open with Fast Open may be given the data of its SYN. `Connected` follows.
    Opening { conn: ConnId },
    /// The connection (or the attempt) is dead. `Released` follows.
    Failed { conn: ConnId, reason: Reason },
    /// In-order bytes are available up to this offset.
    Received { conn: ConnId, upto: u64 },
    /// The peer's urgent mark is at this offset (RFC 9293 3.9.1.8); with the byte there once it has
    /// come, in order or not. Told before the byte can be read.
    Urgent {
        conn: ConnId,
        at: u64,
        byte: Option<u8>,
    },
    /// The peer's FIN was reached in order. It is not reported for a connection that the program
    /// has closed.
    Fin { conn: ConnId },
    /// The peer has everything before this offset: the send ring may free it.
    Acked { conn: ConnId, upto: u64 },
    /// The auto-tuned limit of unacknowledged and unsent bytes changed.
    SendLimit { conn: ConnId, bytes: u32 },
    /// The block is gone (or in TIME-WAIT): rings are no longer read, the id is invalid.
    Released { conn: ConnId },
    /// A flow that this side opened exists, for the keeper's directory. It ends with `Released`.
    FlowOpened {
        conn: ConnId,
        local: SocketAddr,
        remote: SocketAddr,
    },
    /// A neighbour's link address was learned or changed.
    Neighbour { ip: IpAddr, mac: [u8; 6] },
    /// Another station claims our address; reported as often as it is defended.
    Conflict { ip: IpAddr, mac: [u8; 6] },
    /// An ICMP error arrived for a connected UDP socket.
    UdpFailed { udp: UdpId, reason: Reason },
}
