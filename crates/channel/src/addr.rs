//! Socket addresses as words: sixteen bytes of address (IPv4 mapped) and a port.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The words of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddrWords {
    pub(crate) ip: [u64; 2],
    pub(crate) port: u16,
}

/// Both ends of a connection, encoded once for everybody who keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    pub(crate) local: AddrWords,
    pub(crate) remote: AddrWords,
}

impl Ends {
    #[inline]
    pub fn of(local: SocketAddr, remote: SocketAddr) -> Ends {
        Ends {
            local: AddrWords::encode(local),
            remote: AddrWords::encode(remote),
        }
    }
}

/// Returns the words of an address without its port.
#[inline]
pub(crate) fn ip_words(ip: IpAddr) -> [u64; 2] {
    match ip {
        // As `to_ipv6_mapped` would have it.
        IpAddr::V4(v4) => [0, 0xffff_0000_0000 | u64::from(v4.to_bits())],
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            [(bits >> 64) as u64, bits as u64]
        }
    }
}

pub(crate) fn ip_of([high, low]: [u64; 2]) -> IpAddr {
    let bits = u128::from(high) << 64 | u128::from(low);
    Ipv6Addr::from_bits(bits).to_canonical()
}

impl AddrWords {
    /// No address.
    pub(crate) const ABSENT: AddrWords = AddrWords {
        ip: [0, 0],
        port: 0,
    };

    #[inline]
    pub(crate) fn encode(addr: SocketAddr) -> AddrWords {
        AddrWords {
            ip: ip_words(addr.ip()),
            port: addr.port(),
        }
    }

    pub(crate) fn decode(self) -> SocketAddr {
        let bits = u128::from(self.ip[0]) << 64 | u128::from(self.ip[1]);
        let ip = Ipv6Addr::from_bits(bits).to_canonical();
        SocketAddr::new(ip, self.port)
    }
}
