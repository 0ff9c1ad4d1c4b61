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

/// The input of a card's hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Input {
    /// Source and destination as they are.
    #[default]
    Plain,
    /// In the place of both, the exclusive or of both: the two directions of a flow have one hash
    /// (RXH_XFRM_SYM_XOR of linux/ethtool.h).
    Symmetric,
}

/// Places of the fields in the input.
#[derive(Clone, Copy)]
struct Places {
    src: usize,
    dst: usize,
    src_port: usize,
    dst_port: usize,
    len: usize,
}

const V4: Places = Places {
    src: 0,
    dst: 4,
    src_port: 8,
    dst_port: 10,
    len: 12,
};
const V6: Places = Places {
    src: 0,
    dst: 16,
    src_port: 32,
    dst_port: 34,
    len: INPUT_LEN,
};

/// A key, ready to hash with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toeplitz {
    /// The word of the key for each bit of the input of IPv4.
    v4: [u32; V4.len * 8],
    v6: [u32; V6.len * 8],
}

impl Toeplitz {
    pub fn new(key: &[u8; KEY_LEN], input: Input) -> Toeplitz {
        let mut words = [0; INPUT_LEN * 8];
        for (bit, word) in words.iter_mut().enumerate() {
            let at = bit / 8;
            let bytes = [key[at], key[at + 1], key[at + 2], key[at + 3], key[at + 4]];
            let wide = bytes
                .iter()
                .fold(0u64, |all, byte| all << 8 | u64::from(*byte));
            *word = (wide >> (8 - bit % 8)) as u32;
        }
        let mut v4 = [0; V4.len * 8];
        v4.copy_from_slice(&words[..V4.len * 8]);
        let mut v6 = words;
        if input == Input::Symmetric {
            merge(&mut v4, V4);
            merge(&mut v6, V6);
        }
        Toeplitz { v4, v6 }
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
                part(&self.v4, V4.src, &src.octets()) ^ part(&self.v4, V4.dst, &dst.octets())
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                part(&self.v6, V6.src, &src.octets()) ^ part(&self.v6, V6.dst, &dst.octets())
            }
            _ => 0,
        }
    }

    fn of_src_port(&self, src: SocketAddr) -> u32 {
        let port = src.port().to_be_bytes();
        match src.is_ipv6() {
            true => part(&self.v6, V6.src_port, &port),
            false => part(&self.v4, V4.src_port, &port),
        }
    }

    fn of_dst_port(&self, is_ipv6: bool, port: u16) -> u32 {
        let port = port.to_be_bytes();
        match is_ipv6 {
            true => part(&self.v6, V6.dst_port, &port),
            false => part(&self.v4, V4.dst_port, &port),
        }
    }
}

/// Replaces the words of source and destination by their common ones: hashing the exclusive or of
/// two fields at both places is hashing each with the words of both places.
fn merge(words: &mut [u32], at: Places) {
    for (src, dst, len) in [
        (at.src, at.dst, at.dst - at.src),
        (at.src_port, at.dst_port, at.dst_port - at.src_port),
    ] {
        for bit in 0..len * 8 {
            let both = words[src * 8 + bit] ^ words[dst * 8 + bit];
            (words[src * 8 + bit], words[dst * 8 + bit]) = (both, both);
        }
    }
}

/// The part of the hash that is due to bytes at a place of the input.
fn part(words: &[u32], at: usize, bytes: &[u8]) -> u32 {
    let words = words[8 * at..].chunks_exact(8);
    let mut hash = 0;
    for (byte, words) in bytes.iter().zip(words) {
        for (bit, word) in words.iter().enumerate() {
            hash ^= word & 0u32.wrapping_sub(u32::from(byte >> (7 - bit) & 1));
        }
    }
    hash
}

/// The queues of received flows by a card's key and indirection table, for the owner of one queue.
///
/// The entry of a hash is its remainder by the table's length. Ports fall into classes by the low
/// bits of their part in the hash, as many as the length is divisible by: with a length that is a
/// power of two, all ports of a class, or none, bring the frames of a given remote end to a given
/// queue. With another length that holds for some of the classes at best, and single ports are to
/// be looked at ([`QueueMap::is_exact`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueMap {
    hash: Toeplitz,
    /// The queue of each remainder.
    table: Box<[u16]>,
    queue: u16,
    /// The classes of hashes of which entries name this queue.
    own: Box<[u16]>,
    is_exact: bool,
}

impl QueueMap {
    /// Returns `None` if no entry names the queue, or there are too many entries.
    pub fn new(
        (key, input): (&[u8; KEY_LEN], Input),
        table: &[u16],
        queue: u16,
    ) -> Option<QueueMap> {
        if table.is_empty() || table.len() > ENTRIES_MAX {
            return None;
        }
        let classes = 1 << table.len().trailing_zeros();
        let named = |class: &u16| {
            let entries = table.iter().skip(usize::from(*class)).step_by(classes);
            entries.filter(|named| **named == queue).count()
        };
        let all = || (0..classes as u16).map(|class| (class, named(&class)));
        let own: Vec<u16> = all()
            .filter(|(_, named)| *named > 0)
            .map(|(class, _)| class)
            .collect();
        let whole = table.len() / classes;
        (!own.is_empty()).then(|| QueueMap {
            hash: Toeplitz::new(key, input),
            table: table.into(),
            queue,
            own: own.into(),
            is_exact: all().all(|(_, named)| named == 0 || named == whole),
        })
    }

    /// The number of classes.
    pub fn classes(&self) -> usize {
        1 << self.table.len().trailing_zeros()
    }

    /// Returns whether a class decides about all of its ports.
    pub fn is_exact(&self) -> bool {
        self.is_exact
    }

    /// The class of a local port.
    pub fn class_of(&self, is_ipv6: bool, local_port: u16) -> u16 {
        self.masked(self.hash.of_dst_port(is_ipv6, local_port))
    }

    /// The classes of whose ports some bring frames of `remote` to this queue, beginning with any
    /// of them.
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
        first.iter().chain(later).map(move |class| class ^ base)
    }

    /// Returns whether frames from `remote` to `local` come to this queue.
    pub fn is_home(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let entry = self.hash.hash(remote, local) as usize % self.table.len();
        self.table[entry] == self.queue
    }

    fn masked(&self, hash: u32) -> u16 {
        (hash as usize & (self.classes() - 1)) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ports_of_a_hash_class_reach_one_queue() {
        let table: Vec<u16> = (0..128).map(|entry| entry % 6).collect();
        let remotes = ["10.0.0.9:80", "10.7.0.1:443", "[fd00::9]:80"];
        for (queue, remote) in (0..6).zip(remotes.iter().cycle()) {
            let map = QueueMap::new((&KEY, Input::Plain), &table, queue).unwrap();
            assert!(map.is_exact());
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
    fn hash_classes_of_any_table_length_contain_all_ports_of_a_queue() {
        let (remote, local) = ("10.0.0.9:80".parse().unwrap(), "10.0.0.5".parse().unwrap());
        for (len, queues, is_exact) in [(192, 4, true), (192, 3, false), (100, 7, false)] {
            let table: Vec<u16> = (0..len).map(|entry| entry % queues).collect();
            let map = QueueMap::new((&KEY, Input::Plain), &table, 1).unwrap();
            assert_eq!(map.is_exact(), is_exact, "{len} {queues}");
            let home: Vec<u16> = map.home_classes(local, remote, 5).collect();
            let (mut led, mut listed) = (0, 0);
            for port in 1024..=u16::MAX {
                let is_home = map.is_home(SocketAddr::new(local, port), remote);
                let is_listed = home.contains(&map.class_of(false, port));
                assert!(is_listed || !is_home, "{len} {queues} {port}");
                led += u32::from(is_home);
                listed += u32::from(is_listed);
            }
            assert!(
                led > 64_512 / u32::from(queues) / 2,
                "{led} of {len} {queues}"
            );
            assert_eq!(is_exact, led == listed, "{len} {queues}");
        }
    }

    #[test]
    fn a_table_that_never_names_the_queue_makes_no_map() {
        let map = |table: &[u16], queue| QueueMap::new((&KEY, Input::Plain), table, queue);
        assert_eq!(map(&[0, 1, 2, 3], 4), None);
        assert_eq!(map(&[0, 1, 2], 3), None);
        assert_eq!(map(&[], 0), None);
        assert_eq!(map(&[0; ENTRIES_MAX + 1], 0), None);
    }

    #[test]
    fn symmetric_input_has_the_hash_of_the_fields_combined_and_of_both_directions() {
        let (plain, symmetric) = (
            Toeplitz::new(&KEY, Input::Plain),
            Toeplitz::new(&KEY, Input::Symmetric),
        );
        for (one, other, both) in [
            ("10.1.2.3:80", "172.16.0.9:40001", "166.17.2.10:0"),
            ("[fd00::5]:443", "[fd01::1:9]:50000", "[1::1:c]:0"),
        ] {
            let (one, other): (SocketAddr, SocketAddr) =
                (one.parse().unwrap(), other.parse().unwrap());
            let both: SocketAddr = both.parse().unwrap();
            let mixed = SocketAddr::new(both.ip(), one.port() ^ other.port());
            assert_eq!(symmetric.hash(one, other), symmetric.hash(other, one));
            assert_eq!(symmetric.hash(one, other), plain.hash(mixed, mixed));
            assert_ne!(plain.hash(one, other), plain.hash(other, one));
        }
    }

    /// The key of the specification's examples.
    const KEY: [u8; KEY_LEN] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    #[test]
    fn hashes_are_those_of_the_specification() {
        let hash = Toeplitz::new(&KEY, Input::Plain);
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
