//! The table of a rule that chooses engines by the sender's address.

use std::net::IpAddr;

/// Rows of a table at most; each is code of the steering's program.
pub const ROWS_MAX: usize = 64;

/// Senders and the engine that gets their flows, of those of a port in the order of their slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub network: IpAddr,
    pub prefix_len: u8,
    pub engine: u16,
}

/// A word of an address as it lies in a key: `word & mask == value` if it is in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaskedWord {
    pub(crate) mask: u64,
    pub(crate) value: u64,
}

impl Row {
    /// Returns the words of the row's network and mask; of IPv4 the first one counts.
    pub(crate) fn words(&self) -> [MaskedWord; 2] {
        let (octets, mask) = match self.network {
            IpAddr::V4(ip) => {
                let mut octets = [0; 16];
                octets[..4].copy_from_slice(&ip.octets());
                (octets, leading_bits(self.prefix_len.min(32)))
            }
            IpAddr::V6(ip) => (ip.octets(), leading_bits(self.prefix_len.min(128))),
        };
        [0, 8].map(|at| {
            let word = |bytes: &[u8; 16]| {
                let (_, rest) = bytes.split_at(at);
                rest.first_chunk().map_or(0, |it| u64::from_ne_bytes(*it))
            };
            let mask = word(&mask);
            MaskedWord {
                mask,
                value: word(&octets) & mask,
            }
        })
    }
}

/// The first bits of 128, in memory order.
fn leading_bits(count: u8) -> [u8; 16] {
    let bits = u128::MAX.checked_shl(128 - u32::from(count));
    bits.unwrap_or(0).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_in(network: &str, prefix_len: u8, ip: &str) -> bool {
        let row = |ip: &str, prefix_len| Row {
            network: ip.parse().unwrap(),
            prefix_len,
            engine: 0,
        };
        let (words, ip) = (row(network, prefix_len).words(), row(ip, 128).words());
        words
            .iter()
            .zip(ip)
            .all(|(word, ip)| ip.value & word.mask == word.value)
    }

    #[test]
    fn a_row_has_the_addresses_of_its_network() {
        for (network, len, inside, outside) in [
            ("10.1.0.0", 16, "10.1.255.3", "10.2.0.1"),
            ("10.1.2.3", 32, "10.1.2.3", "10.1.2.4"),
            ("10.1.2.128", 25, "10.1.2.200", "10.1.2.100"),
            ("fd00:1::", 32, "fd00:1:2::3", "fd00:2::1"),
            ("fd00::1:0", 112, "fd00::1:9", "fd00::2:9"),
        ] {
            assert!(is_in(network, len, inside), "{network}/{len} {inside}");
            assert!(!is_in(network, len, outside), "{network}/{len} {outside}");
        }
        assert!(is_in("0.0.0.0", 0, "192.0.2.1") && is_in("::", 0, "2001:db8::1"));
    }
}
