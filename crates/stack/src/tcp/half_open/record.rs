//! Records of half-open connections outside of the stack, from which they are rebuilt if it ends
//! without warning.
//!
//! A record has the size of a cache line and is written once, before the SYN-ACK leaves. It lacks
//! what changes later or can be done without: retransmissions, the peer's user timeout (RFC 5482 3:
//! its first segment repeats it), and a rival's number.

use super::{ECN, HalfOpenImage, SACK, TIMESTAMPS, write};
use crate::choices::Choices;
use crate::tcp::Tcp;
use crate::tcp::flow::FlowKey;
use crate::tcp::numbers::Reader;
use crate::tcp::syn::{Numbers, SynEntry};
use crate::time::Instant;

/// Words of a record.
pub const WORDS: usize = 8;

/// In the first word, above the flags of an image: there is a half-open connection.
const USED: u64 = 1 << 7;
const PEER_SHIFT_AT: u32 = 8;
const OUR_SHIFT_AT: u32 = 12;
const LINK_AT: u32 = 16;
const LOCAL_PORT_AT: u32 = 32;
const REMOTE_PORT_AT: u32 = 48;
/// A peer that does not scale its window.
const UNSCALED: u64 = 15;

/// A half-open connection in words that can be shared: the first one is 0 where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfOpenRecord(pub [u64; WORDS]);

impl HalfOpenRecord {
    fn of(entry: &SynEntry, choices: &Choices) -> HalfOpenRecord {
        let flag = |on: bool, bit: u8| if on { u64::from(bit) } else { 0 };
        let flags = flag(entry.has_sack, SACK)
            | flag(entry.has_timestamps, TIMESTAMPS)
            | flag(entry.has_ecn, ECN);
        let peer_shift = match entry.peer_shift {
            u8::MAX => UNSCALED,
            shift => u64::from(shift),
        };
        let link = choices.find(entry.choice).link;
        let head = USED
            | flags
            | peer_shift << PEER_SHIFT_AT
            | u64::from(entry.our_shift) << OUR_SHIFT_AT
            | u64::from(link) << LINK_AT
            | u64::from(entry.key.local_port) << LOCAL_PORT_AT
            | u64::from(entry.key.remote_port) << REMOTE_PORT_AT;
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let (local, remote) = (entry.key.local_bits(), entry.key.remote_bits());
        let lengths = pair(
            u32::from(entry.mss) << 16 | u32::from(entry.our_mss),
            u32::from(entry.window) << 16,
        );
        HalfOpenRecord([
            head,
            local as u64,
            (local >> 64) as u64,
            remote as u64,
            (remote >> 64) as u64,
            pair(entry.iss, entry.irs),
            pair(entry.ts_recent, entry.ts_offset),
            lengths | u64::from(entry.tos) << 8 | u64::from(entry.ttl),
        ])
    }

    /// Rebuilds the image of the connection, and returns it with the link that its listener is
    /// bound to. Its adopter repeats the SYN-ACK: the peer's last ACK may be lost, and the answer
    /// to a second SYN-ACK is equal. `None`: there is no connection.
    pub fn rebuild(&self, now: Instant) -> Option<(HalfOpenImage, u16)> {
        let [head, addresses @ .., numbers, stamps, rest] = self.0;
        if head & USED == 0 {
            return None;
        }
        let mut bytes = [0; 32];
        for (to, word) in bytes.chunks_exact_mut(8).zip(addresses) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let mut addresses = Reader::new(&bytes);
        let (local, remote) = (addresses.address()?, addresses.address()?);
        let port = |at: u32| (head >> at) as u16;
        let key = FlowKey::new(local, port(LOCAL_PORT_AT), remote, port(REMOTE_PORT_AT));
        let mut entry = super::blank(
            key,
            Numbers {
                iss: (numbers >> 32) as u32,
                irs: numbers as u32,
                ts_offset: stamps as u32,
            },
        );
        entry.ts_recent = (stamps >> 32) as u32;
        entry.sent_at = now;
        (entry.mss, entry.our_mss) = ((rest >> 48) as u16, (rest >> 32) as u16);
        entry.window = (rest >> 16) as u16;
        (entry.tos, entry.ttl) = ((rest >> 8) as u8, rest as u8);
        entry.our_shift = (head >> OUR_SHIFT_AT & 15) as u8;
        entry.peer_shift = match head >> PEER_SHIFT_AT & 15 {
            UNSCALED => u8::MAX,
            shift => shift as u8,
        };
        let has = |bit: u8| head & u64::from(bit) != 0;
        (entry.has_sack, entry.has_timestamps) = (has(SACK), has(TIMESTAMPS));
        entry.has_ecn = has(ECN);
        // RFC 6298 3: it is not known when the SYN-ACK has left, nor how often.
        entry.asked = 1;
        entry.is_owed = true;
        Some((write(&entry, None), (head >> LINK_AT) as u16))
    }
}

impl Tcp {
    /// From now on [`Tcp::half_open_changes`] has something to tell.
    pub fn note_half_open(&mut self) {
        self.syns.note_changes();
    }

    /// Tells each place of the table that has changed, with its record if it is in use.
    #[inline]
    pub fn half_open_changes(
        &mut self,
        choices: &Choices,
        mut tell: impl FnMut(u32, Option<HalfOpenRecord>),
    ) {
        while let Some(index) = self.syns.next_change() {
            let entry = self.syns.entries.at(index);
            tell(index, entry.map(|it| HalfOpenRecord::of(it, choices)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;

    #[test]
    fn a_record_keeps_all_that_the_syn_ack_said() {
        let now = Instant(77);
        for (local, remote) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fe80::2")] {
            let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
            for peer_shift in [0, 7, 14, u8::MAX] {
                let key = FlowKey::new(ip(local), 80, ip(remote), 65_535);
                let numbers = Numbers {
                    iss: 0xffff_fff1,
                    irs: 2,
                    ts_offset: 0x8000_0003,
                };
                let mut entry = super::super::blank(key, numbers);
                (entry.ts_recent, entry.sent_at) = (4, Instant(5));
                (entry.mss, entry.our_mss, entry.window) = (536, 1460, 65_535);
                (entry.peer_shift, entry.our_shift) = (peer_shift, 14);
                (entry.tos, entry.ttl, entry.tries) = (0x20, 255, 3);
                (entry.has_sack, entry.has_ecn) = (true, true);
                entry.has_timestamps = peer_shift == 7;
                let (image, link) = HalfOpenRecord::of(&entry, &Choices::default())
                    .rebuild(now)
                    .unwrap();
                (entry.sent_at, entry.tries, entry.asked, entry.is_owed) = (now, 0, 1, true);
                assert_eq!((image, link), (write(&entry, None), 0));
            }
        }
        assert_eq!(HalfOpenRecord([0; WORDS]).rebuild(now), None);
    }
}
