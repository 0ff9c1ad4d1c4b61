//! A set of local ports of both protocols.

use slipstack_device::Transport;

const WORDS: usize = 65_536 / 64;

/// One bit for each port of each protocol.
#[derive(Debug)]
pub struct PortBits {
    tcp: Box<[u64; WORDS]>,
    udp: Box<[u64; WORDS]>,
}

impl PortBits {
    pub fn of(ports: impl Iterator<Item = (Transport, u16)>) -> PortBits {
        let mut bits = PortBits {
            tcp: Box::new([0; WORDS]),
            udp: Box::new([0; WORDS]),
        };
        for (protocol, port) in ports {
            let words = match protocol {
                Transport::Tcp => &mut bits.tcp,
                Transport::Udp => &mut bits.udp,
            };
            words[usize::from(port) / 64] |= 1 << (port % 64);
        }
        bits
    }

    pub fn has(&self, protocol: Transport, port: u16) -> bool {
        let words = match protocol {
            Transport::Tcp => &self.tcp,
            Transport::Udp => &self.udp,
        };
        words[usize::from(port) / 64] & 1 << (port % 64) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_ports_that_it_was_made_of_and_no_others() {
        let ports = [
            (Transport::Tcp, 0),
            (Transport::Tcp, 63),
            (Transport::Udp, 64),
            (Transport::Udp, u16::MAX),
        ];
        let bits = PortBits::of(ports.into_iter());
        for port in 0..=u16::MAX {
            for protocol in [Transport::Tcp, Transport::Udp] {
                let is_in = ports.contains(&(protocol, port));
                assert_eq!(bits.has(protocol, port), is_in, "{protocol:?} {port}");
            }
        }
    }
}
