//! A packet filter for the server: rules of which only the last matches.

use std::net::{Ipv4Addr, SocketAddr};

use slipstack_channel::control::net::{
    FilterAction, FilterEnd, FilterReceived, FilterRule, NetworkState,
};
use slipstack_channel::{SocketError, Transport};
use slipstack_engine::{PortAuthority, PortClaim};

use crate::SERVER;

/// Grants every port, and has this many rules.
pub struct Authority(pub usize);

impl PortAuthority for Authority {
    fn lease_ports(&self) -> Option<(u16, u16)> {
        Some((32_768, 60_999))
    }

    fn listen_on(&self, _: &PortClaim, _: Transport) -> Result<(), SocketError> {
        Ok(())
    }

    fn filter(&self, _: &[u64]) -> Option<FilterReceived> {
        Some(FilterReceived {
            rules: (1..=self.0).map(|at| rule(at, at == self.0)).collect(),
            ..FilterReceived::default()
        })
    }

    fn listen_off(&self, _: (SocketAddr, u16), _: Transport, _: bool) {}
}

/// One of addresses that send nothing, or the last one.
fn rule(at: usize, is_last: bool) -> FilterRule {
    let from = FilterEnd {
        nets: vec![(Ipv4Addr::from_bits(0xc000_0000 + at as u32).into(), 32)],
        ..FilterEnd::default()
    };
    FilterRule {
        id: at as u64,
        from: if is_last { FilterEnd::default() } else { from },
        ..FilterRule::new(
            at as u32,
            if is_last {
                FilterAction::Allow
            } else {
                FilterAction::Deny
            },
        )
    }
}

/// The network of the server, which has a filter.
pub fn network() -> NetworkState {
    NetworkState {
        revision: 1,
        filter: 1,
        ..NetworkState::of(1500, vec![(SERVER.into(), 24)], &[])
    }
}
