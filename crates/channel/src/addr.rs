//! Socket addresses as words: sixteen bytes of address (IPv4 mapped) and a port.

use std::net::SocketAddr;

use slipstack_terms::{ip_of, ip_words};

/// The words of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddrWords {
    pub(crate) ip: [u64; 2],
    pub(crate) port: u16,
}

/// The two ends of a connection, encoded once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    pub(crate) local: AddrWords,
    pub(crate) remote: AddrWords,
}

impl Ends {
    /// Local, remote.
    pub fn addrs(&self) -> (SocketAddr, SocketAddr) {
        (self.local.decode(), self.remote.decode())
    }

    #[inline]
    pub fn of(local: SocketAddr, remote: SocketAddr) -> Ends {
        Ends {
            local: AddrWords::encode(local),
            remote: AddrWords::encode(remote),
        }
    }
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
        SocketAddr::new(ip_of(self.ip), self.port)
    }
}
