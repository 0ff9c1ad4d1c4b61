//! The control messages that a socket has asked for with its datagrams.

use crate::socket::ancillary::{
    IP_ORIGDSTADDR, IPV6_ORIGDSTADDR, RCVMARK, RCVPRIORITY, TIMESTAMP_NEW, TIMESTAMPING_NEW,
    TIMESTAMPNS_NEW,
};
use crate::socket::options::Options;
use crate::socket::stamping;

/// A set of requested control messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestedControl(u32);

macro_rules! requested {
    ($($name:ident = $bit:literal, $level:expr, $option:expr;)*) => {
        impl RequestedControl {
            $(pub(crate) const $name: RequestedControl = RequestedControl(1 << $bit);)*
        }

        const ALL: &[(RequestedControl, i32, i32)] =
            &[$((RequestedControl::$name, $level, $option),)*];
    };
}

requested! {
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
    INQ = 16, libc::IPPROTO_TCP, libc::TCP_INQ;
    MARK = 17, libc::SOL_SOCKET, RCVMARK;
    PRIORITY = 18, libc::SOL_SOCKET, RCVPRIORITY;
}

/// Returns which receive timestamps are taken and reported.
fn stamps(options: &Options) -> u32 {
    const BOTH: u32 = stamping::RX_SOFTWARE | stamping::SOFTWARE;
    let is_new = options.bytes(libc::SOL_SOCKET, TIMESTAMPING_NEW).is_some();
    match options.timestamping() & BOTH {
        BOTH if is_new => RequestedControl::STAMP_NEW.0,
        BOTH => RequestedControl::STAMP.0,
        _ => 0,
    }
}

impl RequestedControl {
    pub(crate) const STAMP: RequestedControl = RequestedControl(1 << 14);
    pub(crate) const STAMP_NEW: RequestedControl = RequestedControl(1 << 15);

    pub(crate) fn of(options: &Options) -> RequestedControl {
        let wished = ALL
            .iter()
            .filter(|(_, level, name)| options.is_on(*level, *name));
        RequestedControl(wished.fold(stamps(options), |bits, (request, ..)| bits | request.0))
    }

    /// Returns the control messages that come with a connection's data.
    pub(crate) fn of_stream(options: &Options) -> RequestedControl {
        const TIMES: u32 = RequestedControl::TIME.0
            | RequestedControl::TIME_NS.0
            | RequestedControl::TIME_NEW.0
            | RequestedControl::TIME_NS_NEW.0
            | RequestedControl::STAMP.0
            | RequestedControl::STAMP_NEW.0;
        RequestedControl(RequestedControl::of(options).0 & (TIMES | RequestedControl::INQ.0))
    }

    /// Returns those that an error comes with (ip_recv_error()).
    pub(crate) fn of_error(self) -> RequestedControl {
        RequestedControl(self.0 & !(RequestedControl::MARK.0 | RequestedControl::PRIORITY.0))
    }

    /// Whether there are others than TCP_INQ.
    pub(crate) fn has_times(self) -> bool {
        self.0 & !RequestedControl::INQ.0 != 0
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    pub(crate) fn from_bits(bits: u32) -> RequestedControl {
        RequestedControl(bits)
    }

    pub(crate) fn has(self, request: RequestedControl) -> bool {
        self.0 & request.0 != 0
    }
}
