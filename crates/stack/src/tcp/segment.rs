//! A received segment with its options.

use slipstack_wire::fast_open::FastOpen;
use slipstack_wire::plain::PlainTcp;
use slipstack_wire::tcp::{TcpFlags, TcpSegment};
use slipstack_wire::tcp_options::{TcpOptions, Timestamps, find_timestamps, parse_timestamps_only};
use slipstack_wire::user_timeout::UserTimeout;

use super::ecn;
use crate::effects::{Absent, RxMeta};

#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    pub seq: u32,
    pub ack: u32,
    pub flags: TcpFlags,
    /// Window as in the header, unscaled.
    pub window: u16,
    /// Urgent pointer; meaningless without URG.
    pub urgent: u16,
    /// As on the wire; parsed when more than a timestamp is in them.
    options: &'a [u8],
    timestamps: Option<Timestamps>,
    /// Nothing but timestamps.
    pub is_plain: bool,
    /// The payload that is at hand: all of it, or nothing if it is `absent`.
    pub payload: &'a [u8],
    pub absent: Absent,
    /// Several segments in one frame.
    pub is_gso: bool,
    /// ECE, the answer to a router's mark (RFC 3168 5), else nothing.
    pub mark: TcpFlags,
}

impl<'a> Segment<'a> {
    #[inline]
    pub fn new(parsed: &TcpSegment<'a>, tos: u8, meta: RxMeta) -> Segment<'a> {
        let (timestamps, is_plain) = match parsed.options {
            [] => (None, true),
            bytes => match parse_timestamps_only(bytes) {
                Some(timestamps) => (Some(timestamps), true),
                // A SYN's are wanted all at once, later.
                None if parsed.header.flags.is_syn() => (None, false),
                None => (find_timestamps(bytes), false),
            },
        };
        let header = &parsed.header;
        Segment {
            seq: header.seq,
            ack: header.ack,
            flags: header.flags,
            window: header.window,
            urgent: header.urgent,
            options: parsed.options,
            timestamps,
            is_plain,
            payload: parsed.payload,
            absent: Absent::default(),
            is_gso: meta.gso,
            mark: ecn::mark_of(tos),
        }
    }

    /// Builds the segment of a frame that is known to be plain.
    #[inline]
    pub fn of_plain(plain: &PlainTcp<'a>, is_gso: bool) -> Segment<'a> {
        Segment {
            seq: plain.seq,
            ack: plain.ack,
            flags: plain.flags,
            window: plain.window,
            urgent: 0,
            options: &[],
            timestamps: plain.timestamps,
            is_plain: true,
            payload: plain.payload,
            absent: Absent::default(),
            is_gso,
            mark: ecn::mark_of(plain.tos),
        }
    }

    /// Builds the segment of a frame whose payload is still with the device.
    pub fn of_absent(plain: &PlainTcp<'a>, absent: Absent, is_gso: bool) -> Segment<'a> {
        Segment {
            payload: &[],
            absent,
            ..Segment::of_plain(plain, is_gso)
        }
    }

    /// Length of the payload.
    #[inline]
    pub fn text_len(&self) -> usize {
        self.payload.len() + self.absent.len
    }

    #[inline]
    pub fn timestamps(&self) -> Option<Timestamps> {
        if self.is_plain || !self.flags.is_syn() {
            self.timestamps
        } else {
            self.options().timestamps
        }
    }

    /// All options: for SYNs and ACKs with SACK blocks.
    pub fn options(&self) -> TcpOptions {
        TcpOptions::parse(self.options)
    }

    /// The Fast Open option, which only SYNs carry (RFC 7413 4.1.1).
    pub fn fast_open(&self) -> Option<FastOpen> {
        FastOpen::find(self.options)
    }

    /// The User Timeout option (RFC 5482 3.3).
    pub fn user_timeout(&self) -> Option<UserTimeout> {
        UserTimeout::find(self.options)
    }

    /// Returns whether it has only data, of a size that suggests that more follows.
    #[inline]
    pub fn is_full(&self, mss: u16) -> bool {
        self.flags == TcpFlags::ACK && self.payload.len() >= usize::from(mss.max(1)) && !self.is_gso
    }

    /// SEG.LEN: payload, SYN and FIN.
    #[inline]
    pub fn len(&self) -> u64 {
        self.payload.len() as u64 + u64::from(self.flags.is_fin()) + u64::from(self.flags.is_syn())
    }
}
