//! The memory of a program: the upper half of an address names a region, the lower half is the
//! place in it. Region 0 is no memory, so that 0 is the null pointer.

use alloc::vec::Vec;

const REGION_SHIFT: u32 = 32;
const CONTEXT: u64 = 1;
const PACKET: u64 = 2;
const STACK: u64 = 3;
const VALUES: u64 = 4;
const MAPS: u64 = 5;

/// MAX_BPF_STACK, and the calls inside one another (MAX_CALL_FRAMES).
const FRAME: usize = 512;
pub(super) const FRAMES_MAX: usize = 8;
/// Bytes of all values that one run looks up.
const VALUES_MAX: usize = 64 * 1024;
/// Bytes of `struct sk_reuseport_md` without its sockets.
const CONTEXT_LEN: usize = 36;
/// Bytes of a UDP header.
const HEADER: usize = 8;

/// A datagram as a program sees it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The header of IP.
    pub network: &'a [u8],
    /// The header of UDP.
    pub transport: [u8; HEADER],
    pub payload: &'a [u8],
    /// The type of the frame: that of IPv4 or IPv6.
    pub ether_type: u16,
    pub protocol: u8,
    /// The group is bound to all addresses.
    pub is_any: bool,
    /// A number that depends on both ends.
    pub hash: u32,
}

impl Seen<'_> {
    fn len(&self) -> usize {
        HEADER + self.payload.len()
    }

    /// `struct sk_reuseport_md`.
    fn context(&self) -> [u8; CONTEXT_LEN] {
        let data = PACKET << REGION_SHIFT;
        let (len, is_any) = (self.len() as u32, u32::from(self.is_any));
        let ether_type = u32::from(self.ether_type.to_be());
        let mut context = [0; CONTEXT_LEN];
        context[..8].copy_from_slice(&data.to_ne_bytes());
        context[8..16].copy_from_slice(&(data + u64::from(len)).to_ne_bytes());
        let words = [len, ether_type, self.protocol.into(), is_any, self.hash];
        for (into, word) in context[16..].chunks_exact_mut(4).zip(words) {
            into.copy_from_slice(&word.to_ne_bytes());
        }
        context
    }

    /// Copies bytes from the UDP header on; `None` beyond the end.
    pub(super) fn read(&self, at: usize, into: &mut [u8]) -> Option<()> {
        let beyond = at.checked_sub(HEADER);
        if let Some(from) = beyond {
            let bytes = self.payload.get(from..from.checked_add(into.len())?)?;
            into.copy_from_slice(bytes);
            return Some(());
        }
        if at + into.len() > self.len() {
            return None;
        }
        let bytes = self.transport.iter().chain(self.payload).skip(at);
        into.iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from);
        Some(())
    }

    /// As [`Seen::read`], from the header of IP on.
    pub(super) fn read_network(&self, at: usize, into: &mut [u8]) -> Option<()> {
        let within = self.network.len().saturating_sub(at).min(into.len());
        let (first, rest) = into.split_at_mut(within);
        first.copy_from_slice(self.network.get(at..at + within).unwrap_or_default());
        match rest.is_empty() {
            true => Some(()),
            false => self.read((at + within).checked_sub(self.network.len())?, rest),
        }
    }
}

/// Everything that a program reads and writes.
pub(super) struct Memory<'a> {
    pub(super) seen: &'a Seen<'a>,
    context: [u8; CONTEXT_LEN],
    stack: [u8; FRAME * FRAMES_MAX],
    values: Vec<u8>,
}

impl<'a> Memory<'a> {
    pub(super) fn new(seen: &'a Seen<'a>) -> Memory<'a> {
        Memory {
            seen,
            context: seen.context(),
            stack: [0; FRAME * FRAMES_MAX],
            values: Vec::new(),
        }
    }

    pub(super) fn context_at() -> u64 {
        CONTEXT << REGION_SHIFT
    }

    /// The end of the stack of the call at this depth.
    pub(super) fn frame_end(depth: usize) -> u64 {
        (STACK << REGION_SHIFT) + (FRAME * (depth + 1)) as u64
    }

    pub(super) fn address_of_map(id: u32) -> u64 {
        MAPS << REGION_SHIFT | u64::from(id)
    }

    /// The map that an address is that of.
    pub(super) fn map_at(address: u64) -> Option<u32> {
        (address >> REGION_SHIFT == MAPS).then_some(address as u32)
    }

    /// Keeps a value and returns its address; 0 if there is no room.
    pub(super) fn keep(&mut self, value: &[u8]) -> u64 {
        let at = self.values.len();
        if value.len() > VALUES_MAX - at {
            return 0;
        }
        self.values.extend_from_slice(value);
        (VALUES << REGION_SHIFT) + at as u64
    }

    pub(super) fn read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let at = address as u32 as usize;
        let region: &[u8] = match address >> REGION_SHIFT {
            PACKET => return self.seen.read(at, into),
            CONTEXT => &self.context,
            STACK => &self.stack,
            VALUES => &self.values,
            _ => return None,
        };
        into.copy_from_slice(region.get(at..at.checked_add(into.len())?)?);
        Some(())
    }

    /// The bytes of the stack or of a value, to be written.
    pub(super) fn place(&mut self, address: u64, len: usize) -> Option<&mut [u8]> {
        let at = address as u32 as usize;
        let region: &mut [u8] = match address >> REGION_SHIFT {
            STACK => &mut self.stack,
            VALUES => &mut self.values,
            _ => return None,
        };
        region.get_mut(at..at.checked_add(len)?)
    }
}
