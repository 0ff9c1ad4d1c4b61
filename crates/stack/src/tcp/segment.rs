//! A segment that came in, with its options.

use slipstack_wire::tcp::{TcpFlags, TcpSegment};
use slipstack_wire::tcp_options::{TcpOptions, Timestamps, parse_timestamps_only};

use crate::effects::RxMeta;

#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    pub seq: u32,
    pub ack: u32,
    pub flags: TcpFlags,
    /// Not scaled.
    pub window: u16,
    pub options: TcpOptions,
    pub payload: &'a [u8],
    /// Several segments in one frame.
    pub is_gso: bool,
}

impl<'a> Segment<'a> {
    #[inline]
    pub fn new(parsed: &TcpSegment<'a>, meta: RxMeta) -> Segment<'a> {
        let options = match parsed.options {
            [] => TcpOptions::default(),
            bytes => match parse_timestamps_only(bytes) {
                Some(timestamps) => TcpOptions {
                    timestamps: Some(timestamps),
                    ..TcpOptions::default()
                },
                None => TcpOptions::parse(bytes),
            },
        };
        let header = &parsed.header;
        Segment {
            seq: header.seq,
            ack: header.ack,
            flags: header.flags,
            window: header.window,
            options,
            payload: parsed.payload,
            is_gso: meta.gso,
        }
    }

    #[inline]
    pub fn timestamps(&self) -> Option<Timestamps> {
        self.options.timestamps
    }

    /// SEG.LEN: payload, SYN and FIN.
    #[inline]
    pub fn len(&self) -> u64 {
        self.payload.len() as u64 + u64::from(self.flags.is_fin()) + u64::from(self.flags.is_syn())
    }
}
