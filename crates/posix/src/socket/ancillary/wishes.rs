//! The control messages that a socket has asked for with its datagrams.

use crate::socket::ancillary::{
    IP_ORIGDSTADDR, IPV6_ORIGDSTADDR, TIMESTAMP_NEW, TIMESTAMPING_NEW, TIMESTAMPNS_NEW,
};
use crate::socket::options::Options;
use crate::socket::stamping;

/// A set of requested control messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes(u32);

macro_rules! wishes {
    ($($name:ident = $bit:literal, $level:expr, $option:expr;)*) => {
        impl Wishes {
            $(pub(crate) const $name: Wishes = Wishes(1 << $bit);)*
        }

        const ALL: &[(Wishes, i32, i32)] = &[$((Wishes::$name, $level, $option),)*];
    };
}

wishes! {
    PACKET_INFO = 0, libc::IPPROTO_IP, libc::IP_PKTINFO;
    TTL = 1, libc::IPPROTO_IP, libc::IP_RECVTTL;
    TOS = 2, libc::IPPROTO_IP, libc::IP_RECVTOS;
    DESTINATION = 3, libc::IPPROTO_IP, IP_ORIGDSTADDR;
    PACKET_INFO_V6 = 4, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO;
    HOP_LIMIT = 5, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT;
    TRAFFIC_CLASS = 6, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS;
    DESTINATION_V6 = 7, libc::IPPROTO_IPV6, IPV6_ORIGDSTADDR;
    TIME = 8, libc::SOL_SOCKET, libc::SO_TIMESTAMP;
    TIME_NS = 9, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS;
    TIME_NEW = 10, libc::SOL_SOCKET, TIMESTAMP_NEW;
    TIME_NS_NEW = 11, libc::SOL_SOCKET, TIMESTAMPNS_NEW;
    LOST = 12, libc::SOL_SOCKET, libc::SO_RXQ_OVFL;
    SEGMENT = 13, libc::SOL_UDP, libc::UDP_GRO;
}

/// Returns which receive timestamps are taken and reported.
fn stamps(options: &Options) -> u32 {
    const BOTH: u32 = stamping::RX_SOFTWARE | stamping::SOFTWARE;
    let is_new = options.bytes(libc::SOL_SOCKET, TIMESTAMPING_NEW).is_some();
    match options.timestamping() & BOTH {
        BOTH if is_new => Wishes::STAMP_NEW.0,
        BOTH => Wishes::STAMP.0,
        _ => 0,
    }
}

impl Wishes {
    pub(crate) const STAMP: Wishes = Wishes(1 << 14);
    pub(crate) const STAMP_NEW: Wishes = Wishes(1 << 15);

    pub(crate) fn of(options: &Options) -> Wishes {
        let wished = ALL
            .iter()
            .filter(|(_, level, name)| options.is_on(*level, *name));
        Wishes(wished.fold(stamps(options), |bits, (wish, ..)| bits | wish.0))
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    pub(crate) fn from_bits(bits: u32) -> Wishes {
        Wishes(bits)
    }

    pub(crate) fn has(self, wish: Wishes) -> bool {
        self.0 & wish.0 != 0
    }
}
