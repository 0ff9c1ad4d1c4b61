//! Offloads: a device's work on a received frame, and on a frame to send.
//!
//! The shapes follow virtio-net's header (VIRTIO 1.2, 5.1.6), which AF_PACKET and TAP share.

use crate::checksum::Sum;
use crate::flow::FrameFlow;
use crate::{protocol, tcp, udp};

/// State of the transport checksum of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RxChecksum {
    /// Unverified: the stack does it.
    #[default]
    Unknown,
    /// The device or the kernel verified it.
    Verified,
    /// The sender is on this machine and left it to be filled in (NEEDS_CSUM): trusted, and the
    /// field does not hold a checksum.
    Partial,
}

/// Facts about a received frame beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RxMeta {
    pub checksum: RxChecksum,
    /// Several segments coalesced into one frame (GRO, TSO of a sender on this machine).
    pub gso: bool,
    /// Payload bytes of the segments, or the datagrams, that arrived joined in one frame; 0 = a
    /// single one, or unknown.
    pub segment: u16,
    /// Sent by this machine's own stacks to their own address; a device never sets it.
    pub local: bool,
    /// The link by which it arrived ([`crate::LinkId`]), whose 802.1Q tag the device has removed; 0
    /// = the device's own link.
    pub link: u16,
}

impl RxMeta {
    pub const UNKNOWN: Self = Self {
        checksum: RxChecksum::Unknown,
        gso: false,
        segment: 0,
        local: false,
        link: 0,
    };
    pub const VERIFIED: Self = Self {
        checksum: RxChecksum::Verified,
        gso: false,
        segment: 0,
        local: false,
        link: 0,
    };
    /// A frame of our own that is looped back, with its checksum still partial.
    pub const LOCAL: Self = Self {
        checksum: RxChecksum::Partial,
        gso: false,
        segment: 0,
        local: true,
        link: 0,
    };
}

/// A transport checksum that the device completes.
///
/// The field holds the pseudo-header sum, folded and not complemented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// First byte that the checksum covers, from the start of the frame.
    pub start: u16,
    /// Offset of the field, from `start`.
    pub offset: u16,
}

impl PartialChecksum {
    /// Position of a TCP or UDP checksum in an Ethernet frame; `None` for other frames and
    /// fragments.
    pub fn of_frame(frame: &[u8]) -> Option<Self> {
        let flow = FrameFlow::parse(frame)?;
        let offset = match flow.protocol {
            protocol::TCP => tcp::CHECKSUM_AT,
            _ => udp::CHECKSUM_AT,
        };
        Some(Self {
            start: u16::try_from(flow.transport_at).ok()?,
            offset,
        })
    }

    /// Fills the field in, over the rest of `header` and the payload's pieces.
    pub fn complete<'a>(&self, header: &mut [u8], payload: impl IntoIterator<Item = &'a [u8]>) {
        let mut sum = Sum::ZERO;
        for piece in payload {
            sum.add_bytes(piece);
        }
        self.complete_over(header, sum);
    }

    /// Fills the field in, over the rest of `header` and a payload of this sum.
    pub fn complete_over(&self, header: &mut [u8], payload: Sum) {
        let start = usize::from(self.start).min(header.len());
        let at = start + usize::from(self.offset);
        let mut sum = Sum::ZERO;
        sum.add_bytes(&header[start..]);
        sum.add_sum(payload);
        // RFC 768: a UDP checksum of zero is sent as ones; for TCP both mean the same.
        let checksum = if sum.finish() == 0 {
            0xffff
        } else {
            sum.finish()
        };
        if let Some(field) = header.get_mut(at..at + 2) {
            field.copy_from_slice(&checksum.to_be_bytes());
        }
    }
}

/// A frame that is to be cut into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gso {
    /// Payload bytes of each segment but the last.
    pub mss: u16,
    /// Bytes of all headers, from the start of the frame.
    pub header_len: u16,
}

/// Work left to the device for a frame to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TxOffload {
    pub checksum: Option<PartialChecksum>,
    pub gso: Option<Gso>,
    /// The link by which it leaves ([`crate::LinkId`]), whose 802.1Q tag the device inserts; 0 =
    /// the device's own link.
    pub link: u16,
    /// The class by which the tag's priority is chosen, plus one; 0 = by the type of service of
    /// IPv4.
    pub class: u8,
}

impl TxOffload {
    pub const NONE: Self = Self {
        checksum: None,
        gso: None,
        link: 0,
        class: 0,
    };

    /// None but the tag.
    pub const fn on(link: u16) -> Self {
        Self {
            checksum: None,
            gso: None,
            link,
            class: 0,
        }
    }
}
