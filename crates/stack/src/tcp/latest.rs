//! The connection to which the last plain segment belonged.

use core::net::{IpAddr, Ipv4Addr};

use slipstack_wire::plain::PlainTcp;

use super::flow::FlowKey;

/// A flow of IPv4 as it is compared: a few words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    local: Ipv4Addr,
    pub remote: Ipv4Addr,
    ports: u32,
}

impl Flow {
    #[inline(always)]
    pub fn of(plain: &PlainTcp<'_>) -> Flow {
        Flow {
            local: plain.dst,
            remote: plain.src,
            ports: u32::from(plain.dst_port) << 16 | u32::from(plain.src_port),
        }
    }

    pub fn key(&self) -> FlowKey {
        let (local, remote) = (IpAddr::V4(self.local), IpAddr::V4(self.remote));
        FlowKey::new(local, (self.ports >> 16) as u16, remote, self.ports as u16)
    }
}

/// The connection that the last plain segment was for: segments come in trains.
#[derive(Clone, Copy, Debug)]
pub struct Latest {
    pub(super) flow: Flow,
    pub(super) index: u32,
}

impl Default for Latest {
    fn default() -> Latest {
        Latest {
            flow: Flow {
                local: Ipv4Addr::UNSPECIFIED,
                remote: Ipv4Addr::UNSPECIFIED,
                ports: 0,
            },
            // No connection has this index.
            index: u32::MAX,
        }
    }
}

impl Latest {
    /// The block is gone; another connection may reuse its index.
    #[inline]
    pub fn forget(&mut self, index: u32) {
        if self.index == index {
            *self = Latest::default();
        }
    }
}
