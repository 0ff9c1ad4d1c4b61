//! The flow hash that selects buckets: computed here for local frames and, instruction for
//! instruction, by the eBPF program in `bpf/programs.rs`.

use std::net::{IpAddr, SocketAddr};

use slipstack_wire::zone::plain_ip;

pub(crate) const MULTIPLIER_1: u64 = 0x9e37_79b9_7f4a_7c15;
pub(crate) const MULTIPLIER_2: u64 = 0xd6e8_feb8_6659_fd93;
pub(crate) const SHIFT: u32 = 32;

/// Returns the hash of a received flow from the words of its headers in memory order: the two
/// addresses, and source and destination port in one word.
pub(crate) fn of_words(key: u64, source: u32, destination: u32, ports: u32) -> u64 {
    let mut hash = (u64::from(source) << 32 | u64::from(ports)) ^ key;
    hash = hash.wrapping_mul(MULTIPLIER_1);
    hash ^= hash >> SHIFT;
    hash = hash.wrapping_add(u64::from(destination));
    hash = hash.wrapping_mul(MULTIPLIER_2);
    hash ^= hash >> SHIFT;
    hash
}

/// Returns the hash of a flow given from the stack's point of view.
pub(crate) fn of_flow(key: u64, local: SocketAddr, remote: SocketAddr) -> u64 {
    let [a, b] = remote.port().to_be_bytes();
    let [c, d] = local.port().to_be_bytes();
    let ports = u32::from_ne_bytes([a, b, c, d]);
    match (plain_ip(local.ip()), plain_ip(remote.ip())) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => of_words(
            key,
            u32::from_ne_bytes(remote.octets()),
            u32::from_ne_bytes(local.octets()),
            ports,
        ),
        (local, remote) => of_words_v6(key, halves(remote), halves(local), ports),
    }
}

/// Returns the hash of an IPv6 flow, from the halves of the addresses.
pub(crate) fn of_words_v6(key: u64, source: [u64; 2], destination: [u64; 2], ports: u32) -> u64 {
    let mut hash = key ^ u64::from(ports);
    for word in [source[0], source[1], destination[0], destination[1]] {
        hash ^= word;
        hash = hash.wrapping_mul(MULTIPLIER_1);
        hash ^= hash >> SHIFT;
    }
    hash = hash.wrapping_mul(MULTIPLIER_2);
    hash ^= hash >> SHIFT;
    hash
}

/// Returns the hash of a flow that is passed on: the same for both directions.
pub(crate) fn of_transit(key: u64, a: SocketAddr, b: SocketAddr) -> u64 {
    let hash = of_end(key, a).wrapping_add(of_end(key, b));
    mix(hash, MULTIPLIER_2)
}

/// Returns the hash of one end of a flow.
fn of_end(key: u64, end: SocketAddr) -> u64 {
    let [high, low] = end.port().to_be_bytes();
    let port = u64::from(u16::from_ne_bytes([high, low]));
    match end.ip() {
        IpAddr::V4(ip) => {
            let word = u64::from(u32::from_ne_bytes(ip.octets())) << 32 | port;
            mix(word ^ key, MULTIPLIER_1)
        }
        ip => halves(ip)
            .into_iter()
            .fold(key ^ port, |hash, word| mix(hash ^ word, MULTIPLIER_1)),
    }
}

fn mix(hash: u64, multiplier: u64) -> u64 {
    let hash = hash.wrapping_mul(multiplier);
    hash ^ hash >> SHIFT
}

/// An address as two words in memory order.
pub(crate) fn halves(ip: IpAddr) -> [u64; 2] {
    let octets = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    let bits = u128::from_le_bytes(octets);
    [bits as u64, (bits >> 64) as u64]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn flows_that_differ_in_one_port_spread_over_the_buckets() {
        let local = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 2).into(), 80);
        let mut load = [0u32; 16];
        for port in 1024..=u16::MAX {
            let remote = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 1).into(), port);
            load[of_flow(42, local, remote) as usize & 15] += 1;
        }
        let mean = 64_512 / 16;
        for count in load {
            assert!(count.abs_diff(mean) < mean / 8, "{load:?}");
        }
    }

    #[test]
    fn both_directions_of_a_forwarded_flow_hash_alike_and_flows_spread() {
        let far = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 2).into(), 80);
        let mut load = [0u32; 16];
        for port in 1024..=u16::MAX {
            let near = SocketAddr::new(Ipv4Addr::new(10, 1, 0, 1).into(), port);
            let hash = of_transit(42, near, far);
            assert_eq!(hash, of_transit(42, far, near));
            load[hash as usize & 15] += 1;
        }
        for count in load {
            assert!(count.abs_diff(64_512 / 16) < 64_512 / 16 / 8, "{load:?}");
        }
    }

    #[test]
    fn another_hash_key_assigns_flows_to_other_buckets() {
        let local = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 2).into(), 80);
        let differ = (0..1000)
            .filter(|port| {
                let remote = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 1).into(), *port);
                of_flow(1, local, remote) & 4095 != of_flow(2, local, remote) & 4095
            })
            .count();
        assert!(differ > 990);
    }
}
