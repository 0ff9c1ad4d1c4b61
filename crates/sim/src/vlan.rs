//! 802.1Q tags, as switches and adapters add and remove them.

use slipstack_stack::rng::Rng;
use slipstack_wire::ethernet::{EtherType, HEADER_LEN};

/// Bytes of a tag; a link's MTU does not count them.
pub const TAG_LEN: usize = 4;
/// Destination and source.
const ADDRESSES_LEN: usize = 12;
const VLAN: u16 = 0x0fff;
/// One frame in so many comes in another VLAN as well.
const STRAY_EVERY: u32 = 16;
const STRAY: u16 = 0x0abc;

/// The tags of frames between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tags {
    /// A priority and no VLAN: the tag is the stacks' to take off.
    Priority,
    /// A VLAN which the hosts' interfaces are in: they put the tag on and take it off.
    Vlan(u16),
}

#[derive(Debug)]
pub struct Tagging {
    tags: Tags,
    rng: Rng,
    /// Frames that the interfaces left, because they were of another VLAN or of none.
    pub foreign: u64,
}

impl Tagging {
    pub fn new(tags: Tags, rng: Rng) -> Self {
        let foreign = 0;
        Self { tags, rng, foreign }
    }

    /// The frame with its tag.
    pub fn put_on(&mut self, bytes: &[u8]) -> Vec<u8> {
        let vlan = match self.tags {
            Tags::Priority => 0,
            Tags::Vlan(vlan) => vlan & VLAN,
        };
        let priority = self.rng.below(8) as u16;
        tagged(bytes, priority << 13 | vlan)
    }

    /// Returns, now and then, the frame in another VLAN.
    pub fn stray(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        (self.rng.below(STRAY_EVERY) == 0).then(|| tagged(bytes, STRAY))
    }

    /// Returns the frame that an interface hands to its stack.
    pub fn take_off(&mut self, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let Tags::Vlan(vlan) = self.tags else {
            return Some(bytes);
        };
        if tag_of(&bytes).is_none_or(|tag| tag & VLAN != vlan) {
            self.foreign += 1;
            return None;
        }
        bytes.drain(ADDRESSES_LEN..ADDRESSES_LEN + TAG_LEN);
        Some(bytes)
    }
}

fn tagged(bytes: &[u8], tag: u16) -> Vec<u8> {
    let (addresses, rest) = bytes.split_at(ADDRESSES_LEN.min(bytes.len()));
    let kind = EtherType::TAGGED.0.to_be_bytes();
    [addresses, &kind, &tag.to_be_bytes(), rest].concat()
}

/// The tag of a frame that has one.
pub fn tag_of(bytes: &[u8]) -> Option<u16> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_LEN>()?;
    let [.., k0, k1] = *header;
    let is_tagged = u16::from_be_bytes([k0, k1]) == EtherType::TAGGED.0;
    let tag = rest.first_chunk::<2>().filter(|_| is_tagged)?;
    Some(u16::from_be_bytes(*tag))
}
