//! Segments without a connection block, with the results of their checks so far.

use super::flow::FlowKey;
use super::segment::Segment;
use super::syn::{SynEntry, SynTable};
use crate::effects::Effects;
use crate::ids::ListenerId;
use crate::ip::IpMeta;

/// A segment and its flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival<'a> {
    pub key: &'a FlowKey,
    /// The demultiplexer's hash of the key.
    pub hash: u64,
    pub segment: &'a Segment<'a>,
    /// The link by which it arrived, if a listener may have to be chosen.
    pub link: Option<u16>,
}

/// The packet of a segment that another engine may have to take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'a> {
    pub ip: &'a IpMeta,
    pub segment: &'a [u8],
}

impl Packet<'_> {
    /// Passes it on to another engine; returns `false` if none takes it.
    pub fn pass_on(&self, fx: &mut impl Effects) -> bool {
        fx.stray(self.ip, self.segment)
    }
}

/// The listener that takes a new connection, and the number that it begins with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Opening {
    pub listener: Option<ListenerId>,
    /// The initial sequence number that a TIME-WAIT entry in its place requires.
    pub iss: Option<u32>,
}

/// Place of the state of a handshake that ends now.
#[derive(Clone, Copy, Debug)]
pub(super) enum HalfOpen<'a> {
    /// Among the entries.
    Stored(u32),
    /// Entry that came with the segment, or was built for it.
    Carried(&'a SynEntry),
}

impl<'a> HalfOpen<'a> {
    #[inline]
    pub fn entry(self, stored: &'a SynTable) -> Option<&'a SynEntry> {
        match self {
            HalfOpen::Stored(index) => stored.entries.at(index),
            HalfOpen::Carried(entry) => Some(entry),
        }
    }
}

/// A handshake that is complete, and makes a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handshake<'a> {
    pub half: HalfOpen<'a>,
    pub listener: ListenerId,
}
