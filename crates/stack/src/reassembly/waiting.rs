//! Incomplete packets of both families.

use slipstack_wire::{icmpv6, ipv6};

use crate::config::StackConfig;
use crate::fragments::Fragments;
use crate::icmp;
use crate::rng::Rng;
use crate::time::Instant;

/// Time for which the rest of a packet is waited for, in ns: RFC 8200 4.5, and for IPv4 as Linux
/// (`ipfrag_time`).
const PATIENCE_V4_NS: u64 = 30_000_000_000;
const PATIENCE_V6_NS: u64 = 60_000_000_000;

/// Packets of either family that are not whole yet.
#[derive(Debug)]
pub(crate) struct Reassembly {
    pub(super) v4: Fragments,
    pub(super) v6: Fragments,
}

impl Reassembly {
    pub fn new(config: &StackConfig, rng: &mut Rng) -> Self {
        let limit = config.fragments_bytes_max as usize;
        Self {
            v4: Fragments::new(rng.sip_key(), PATIENCE_V4_NS, icmp::QUOTE_MAX, limit),
            v6: Fragments::new(
                rng.sip_key(),
                PATIENCE_V6_NS,
                usize::from(ipv6::MTU_MIN) - ipv6::HEADER_LEN - icmpv6::HEADER_LEN,
                limit,
            ),
        }
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        match (self.v4.next_deadline(), self.v6.next_deadline()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
