//! Receive-side scaling: the Toeplitz hash by which cards choose the queue of a frame.
//!
//! The hash is the exclusive or of one word of the key for each set bit of the input. It is
//! therefore linear, and the part of each field can be computed alone. The input is, in network
//! order, source and destination address, source and destination port.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// Most entries of an indirection table.
pub const ENTRIES_MAX: usize = 4096;
/// Length of the usual key: enough for IPv6 with ports.
pub const KEY_LEN: usize = 40;
/// Bytes of the input of IPv6 with ports.
const INPUT_LEN: usize = 36;

/// A key, ready to hash with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toeplitz {
    /// The word of the key for each bit of the input.
    words: [u32; INPUT_LEN * 8],
}

impl Toeplitz {
    pub fn new(key: &[u8; KEY_LEN]) -> Toeplitz {
        let mut words = [0; INPUT_LEN * 8];
        for (bit, word) in words.iter_mut().enumerate() {
            let at = bit / 8;
            let bytes = [key[at], key[at + 1], key[at + 2], key[at + 3], key[at + 4]];
            let wide = bytes
                .iter()
                .fold(0u64, |all, byte| all << 8 | u64::from(*byte));
            *word = (wide >> (8 - bit % 8)) as u32;
        }
        Toeplitz { words }
    }

    /// The hash of a TCP or UDP packet; both addresses are of one family.
    pub fn hash(&self, src: SocketAddr, dst: SocketAddr) -> u32 {
        self.of_addresses(src.ip(), dst.ip())
            ^ self.of_src_port(src)
            ^ self.of_dst_port(dst.is_ipv6(), dst.port())
    }

    fn of_addresses(&self, src: IpAddr, dst: IpAddr) -> u32 {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                self.part(0, &src.octets()) ^ self.part(4, &dst.octets())
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                self.part(0, &src.octets()) ^ self.part(16, &dst.octets())
            }
            _ => 0,
        }
    }

    fn of_src_port(&self, src: SocketAddr) -> u32 {
        let at = if src.is_ipv6() { 32 } else { 8 };
        self.part(at, &src.port().to_be_bytes())
    }

    fn of_dst_port(&self, is_ipv6: bool, port: u16) -> u32 {
        let at = if is_ipv6 { 34 } else { 10 };
        self.part(at, &port.to_be_bytes())
    }

    /// The part of the hash that is due to bytes at a place of the input.
    fn part(&self, at: usize, bytes: &[u8]) -> u32 {
        let words = self.words[8 * at..].chunks_exact(8);
        let mut hash = 0;
        for (byte, words) in bytes.iter().zip(words) {
            for (bit, word) in words.iter().enumerate() {
                hash ^= word & 0u32.wrapping_sub(u32::from(byte >> (7 - bit) & 1));
            }
        }
        hash
    }
}

/// The queues of received flows by a card's key and indirection table, for the owner of one queue.
///
/// Ports fall into classes: the ports of a class have the same part in the index of the table. So
/// all ports of a class, or none, bring the frames of a given remote end to a given queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueMap {
    hash: Toeplitz,
    /// The queue of each value of the hash's low bits.
    table: Box<[u16]>,
    queue: u16,
    /// The entries that name this queue.
    own: Box<[u16]>,
}

impl QueueMap {
    /// Returns `None` if no entry names the queue, or the table's length is no power of two.
    pub fn new(key: &[u8; KEY_LEN], table: &[u16], queue: u16) -> Option<QueueMap> {
        if !table.len().is_power_of_two() || table.len() > ENTRIES_MAX {
            return None;
        }
        let entries = table.iter().zip(0u16..);
        let own: Vec<u16> = entries
            .filter(|(named, _)| **named == queue)
            .map(|(_, entry)| entry)
            .collect();
        (!own.is_empty()).then(|| QueueMap {
            hash: Toeplitz::new(key),
            table: table.into(),
            queue,
            own: own.into(),
        })
    }

    /// The number of classes.
    pub fn classes(&self) -> usize {
        self.table.len()
    }

    /// The class of a local port.
    pub fn class_of(&self, is_ipv6: bool, local_port: u16) -> u16 {
        self.masked(self.hash.of_dst_port(is_ipv6, local_port))
    }

    /// The classes whose ports bring frames of `remote` to this queue, beginning with any of them.
    pub fn home_classes(
        &self,
        local: IpAddr,
        remote: SocketAddr,
        start: u64,
    ) -> impl Iterator<Item = u16> {
        let hash = self.hash.of_addresses(remote.ip(), local) ^ self.hash.of_src_port(remote);
        let base = self.masked(hash);
        let start = (start % self.own.len() as u64) as usize;
        let (later, first) = self.own.split_at(start);
        first.iter().chain(later).map(move |entry| entry ^ base)
    }

    /// Returns whether frames from `remote` to `local` come to this queue.
    pub fn is_home(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let entry = self.masked(self.hash.hash(remote, local));
        self.table[usize::from(entry)] == self.queue
    }

    fn masked(&self, hash: u32) -> u16 {
        (hash as usize & (self.table.len() - 1)) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_of_a_class_lead_to_one_queue() {
        let table: Vec<u16> = (0..128).map(|entry| entry % 6).collect();
        let remotes = ["10.0.0.9:80", "10.7.0.1:443", "[fd00::9]:80"];
        for (queue, remote) in (0..6).zip(remotes.iter().cycle()) {
            let map = QueueMap::new(&KEY, &table, queue).unwrap();
            let remote: SocketAddr = remote.parse().unwrap();
            let local: IpAddr = match remote {
                SocketAddr::V4(_) => "10.0.0.5".parse().unwrap(),
                SocketAddr::V6(_) => "fd00::5".parse().unwrap(),
            };
            let home: Vec<u16> = map.home_classes(local, remote, 5).collect();
            assert_eq!(home.len(), table.iter().filter(|it| **it == queue).count());
            for port in (1024..=u16::MAX).step_by(7) {
                let is_home = map.is_home(SocketAddr::new(local, port), remote);
                let class = map.class_of(remote.is_ipv6(), port);
                assert_eq!(home.contains(&class), is_home, "{remote} {port}");
            }
        }
    }

    #[test]
    fn a_table_that_never_names_the_queue_or_has_an_odd_length_makes_no_map() {
        assert_eq!(QueueMap::new(&KEY, &[0, 1, 2, 3], 4), None);
        assert_eq!(QueueMap::new(&KEY, &[0, 1, 2], 1), None);
        assert_eq!(QueueMap::new(&KEY, &[], 0), None);
    }

    /// The key of the specification's examples.
    const KEY: [u8; KEY_LEN] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    #[test]
    fn hashes_are_those_of_the_specification() {
        let hash = Toeplitz::new(&KEY);
        for (src, dst, expected) in [
            ("66.9.149.187:2794", "161.142.100.80:1766", 0x51cc_c178),
            ("199.92.111.2:14230", "65.69.140.83:4739", 0xc626_b0ea),
            ("24.19.198.95:12898", "12.22.207.184:38024", 0x5c2b_394a),
            ("38.27.205.30:48228", "209.142.163.6:2217", 0xafc7_327f),
            (
                "[3ffe:2501:200:1fff::7]:2794",
                "[3ffe:2501:200:3::1]:1766",
                0x4020_7d3d,
            ),
            (
                "[3ffe:501:8::260:97ff:fe40:efab]:14230",
                "[ff02::1]:4739",
                0xdde5_1bbf,
            ),
        ] {
            let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
            assert_eq!(hash.hash(src, dst), expected, "{src} {dst}");
        }
    }
}
